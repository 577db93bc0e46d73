// SPDX-License-Identifier: MIT
// Memory of all ranks as the verifier sees it. Each interval of bytes records its value, its
// writer, and its readers since the last write. Intervals split where accesses begin or end. So the
// cost depends on the number of accesses, not on their lengths. Only one thread may use it.
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

// Tells what a number is made of.
struct Value {
  std::vector<int> contributions;  // occurrences of each rank's own number
  int updates = 0;                 // updates of a weight by the optimizer
  double scale = 1;
  bool scaled = false;
  // Operation that joined the contributions. None: one rank's number, or a copy of it.
  std::optional<ReduceOp> op = {};
  // Position of the number when the step began, in bytes relative to its current position. A number
  // may travel, but it is added only to numbers of the same position and must end in its own.
  std::ptrdiff_t moved = 0;
  // Name of the number's bits. Equal names mean equal bits if each rank's own number is the same in
  // both. Copies keep the name; a + b has that of b + a.
  std::uint64_t bits = 0;
  bool narrow = false;                            // representable in bfloat16
  void join(std::vector<std::uint64_t> sources);  // bits of their sum (balanced tree)
  void change(std::uint64_t what);                // bits of a function of this number
  void round();                                   // to bfloat16
  bool operator==(const Value&) const = default;
  bool whole() const;  // contains each rank's number once
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
// Returns the blocks in the norms of a rank that a range of an arena touches.
Stretch norms(int rank, Range range);

class SymbolicMemory {
 public:
  // Cuts stretches of equal length at all their borders. Returns the pieces as [first, second),
  // relative to the beginning of a stretch. No stretch has a border inside of a piece.
  std::vector<std::pair<std::size_t, std::size_t>> pieces(
      const std::vector<Stretch>& stretches) const;
  // Returns the cell of this piece of a stretch; splits or creates it if necessary.
  Cell& cell(const Stretch& stretch, std::pair<std::size_t, std::size_t> piece);

  struct Interval {
    std::size_t end = 0;
    Cell cell;
  };
  using Cells = std::map<std::size_t, Interval>;  // keyed by beginning, disjoint
  const std::map<std::pair<int, Space>, Cells>& spaces() const { return spaces_; }

 private:
  std::map<std::pair<int, Space>, Cells> spaces_;  // keyed by {rank, space}
};

}  // namespace lockstep::collectives
