// SPDX-License-Identifier: MIT
// The memory of all ranks as the verifier sees it: for each interval of bytes what it holds, who
// wrote it, who has read it since. Intervals split where accesses begin or end, so cost depends on
// the number of accesses and never on their lengths. One thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "collectives/check/vector_clock.h"
#include "collectives/plan/plan.h"

namespace lockstep::collectives {

// What a number is made of.
struct Value {
  std::vector<int> contributions;  // how often each rank's own number is in it
  int updates = 0;                 // weights: how often the optimizer changed them
  double scale = 1;
  bool scaled = false;
  // What joined the contributions; none: one rank's number, or a copy of it.
  std::optional<ReduceOp> op = {};
  // Where the number was when the step began, in bytes behind where it is now: it may travel, but
  // is added to numbers of the same place, and ends in its own.
  std::ptrdiff_t moved = 0;
  // A name of the number's bits: equal names, equal bits, if each rank's own number is the same in
  // both. Copies keep it; a + b has that of b + a.
  std::uint64_t bits = 0;
  bool narrow = false;                            // bfloat16 has the number
  void join(std::vector<std::uint64_t> sources);  // the bits of their sum, as a balanced tree
  void change(std::uint64_t what);                // the bits of something made of this number alone
  void round();                                   // to bfloat16
  bool operator==(const Value&) const = default;
  bool whole() const;  // each rank's number, once
};

struct Cell {
  bool defined = false;
  Value value;
  Stamp writer;
  std::vector<Stamp> readers;  // since the last write
};

// Bytes [begin, begin + bytes) of one space of one rank.
struct Stretch {
  int rank = 0;
  Space space = Space::kGradient;
  std::size_t begin = 0, bytes = 0;
};
Stretch stretch(const Operand& operand, std::size_t count, DType dtype);
// The blocks that a range of an arena touches, in the norms of a rank.
Stretch norms(int rank, Range range);

class SymbolicMemory {
 public:
  // The cuts of these stretches, all of one length, laid over each other: pieces [first, second),
  // counted from the beginning of a stretch, inside of which no stretch has a border.
  std::vector<std::pair<std::size_t, std::size_t>> pieces(
      const std::vector<Stretch>& stretches) const;
  // The cell that is this piece of a stretch; it is split off or made where it is not there yet.
  Cell& cell(const Stretch& stretch, std::pair<std::size_t, std::size_t> piece);

  struct Interval {
    std::size_t end = 0;
    Cell cell;
  };
  using Cells = std::map<std::size_t, Interval>;  // by beginning, disjoint
  const std::map<std::pair<int, Space>, Cells>& spaces() const { return spaces_; }

 private:
  std::map<std::pair<int, Space>, Cells> spaces_;  // of {rank, space}
};

}  // namespace lockstep::collectives
