// SPDX-License-Identifier: MIT
// The numbers of one worker's pushes that a server has had: 1, 2, ... as the worker counts them. A
// message that comes again is known by its number, also where messages overtake each other. Numbers
// below the highest that never came are lost: what was pushed between a checkpoint and the end of
// the server that wrote it. A worker that was started anew counts on in its next life (kLifeBit),
// from 1: what lies between two lives is not lost. Kept as ranges, as a rule one; where more than
// kMostGaps would be open, the oldest are given up: they stay lost. One thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::strategies {

class SequenceTable {
 public:
  static constexpr std::size_t kMostGaps = 1024;
  static constexpr std::int64_t kMost = std::int64_t(1) << 62;  // all numbers are below
  static constexpr int kLifeBit = 40;  // of a number: from here on it says which life, from 0
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // [first, end)

  SequenceTable() = default;
  // As `ranges` gave it. Throws Error(kCorrupt) where they do not ascend apart from each other, or
  // hold 0.
  explicit SequenceTable(const Ranges& ranges);

  bool had(std::uint64_t number) const;
  void add(std::uint64_t number);  // that it has not had, at least 1
  std::uint64_t last() const;      // the highest; 0: none
  std::uint64_t lost() const;
  Ranges ranges() const;
  std::size_t count() const { return ends_.size(); }  // of ranges

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by first number
  std::uint64_t given_up_ = 0;                   // lost, and taken for had
};

}  // namespace lockstep::strategies
