// SPDX-License-Identifier: MIT
// An integer for each of the elements [0, size), stored as runs of equal values: the updates of a
// shard's elements, or whether they have a value. Usually all are equal, which is one run. Not
// thread-safe. A call costs the logarithm of the number of runs, plus the runs that it visits.
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
  std::vector<Run> runs(engine::Range within) const;  // clipped to the range, ascending
  std::vector<Run> runs() const { return runs({0, size_}); }
  void set(engine::Range range, std::int64_t value);
  void add(engine::Range range, std::int64_t value);
  std::size_t count() const { return begins_.size(); }  // number of runs
  bool all(std::int64_t value) const;                   // true if there are no elements

 private:
  void split(std::size_t at);
  void join(engine::Range around);
  std::size_t size_ = 0;
  std::map<std::size_t, std::int64_t> begins_;  // starts of runs; the last ends at size_
};

}  // namespace lockstep::strategies
