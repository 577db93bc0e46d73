// SPDX-License-Identifier: MIT
// A whole number for each of the elements [0, size), kept as runs of equal numbers: how often each
// element of a shard was updated, or whether it has a value. As a rule all have the same, and that
// is one run. One thread at a time; a call costs the logarithm of the runs, and the runs it meets.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::strategies {

class RangeValues {
 public:
  explicit RangeValues(std::size_t size, std::int64_t value = 0);
  struct Run {
    engine::Range range = {};
    std::int64_t value = 0;
    bool operator==(const Run&) const = default;
  };
  std::vector<Run> runs(engine::Range within) const;  // cut to the range, ascending
  std::vector<Run> runs() const { return runs({0, size_}); }
  void set(engine::Range range, std::int64_t value);
  void add(engine::Range range, std::int64_t value);
  std::size_t count() const { return begins_.size(); }  // of runs
  bool all(std::int64_t value) const;                   // true where there are no elements

 private:
  void split(std::size_t at);
  void join(engine::Range around);
  std::size_t size_ = 0;
  std::map<std::size_t, std::int64_t> begins_;  // of runs; the last one ends at size_
};

}  // namespace lockstep::strategies
