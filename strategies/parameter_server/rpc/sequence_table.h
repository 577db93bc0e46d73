// SPDX-License-Identifier: MIT
// The sequence numbers of one worker's pushes that a server has received: 1, 2, ... A number
// identifies a repeated message, even if messages overtake each other. Missing numbers below the
// highest are lost pushes: those between a checkpoint and the end of the server that wrote it. A
// restarted worker continues in its next life (kLifeBit), from 1; numbers between two lives are not
// lost. The table stores ranges, usually one. If more than kMostGaps would be open, the oldest gaps
// are closed and count as lost. Not thread-safe.
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
  static constexpr std::int64_t kMost = std::int64_t(1) << 62;  // exclusive limit of all numbers
  // From this bit on a number holds its life, from 0.
  static constexpr int kLifeBit = 40;
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // [first, end)

  SequenceTable() = default;
  // Restores the table from `ranges`. Throws Error(kCorrupt) if they are not ascending and
  // separate, or contain 0.
  explicit SequenceTable(const Ranges& ranges);

  bool had(std::uint64_t number) const;
  void add(std::uint64_t number);  // one not yet received, at least 1
  std::uint64_t last() const;      // the highest; 0: none
  std::uint64_t lost() const;
  Ranges ranges() const;
  std::size_t count() const { return ends_.size(); }  // number of ranges

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by first number
  std::uint64_t given_up_ = 0;                   // lost numbers that count as received
};

}  // namespace lockstep::strategies
