// SPDX-License-Identifier: MIT
// Sums of the losses and correct predictions of synchronous steps over all workers. Each worker
// reports its shares in the order of steps. A report may cover several steps; it has the number of
// the last one. Not thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/train/strategy.h"

namespace lockstep::strategies {

class StepTotals {
 public:
  explicit StepTotals(int workers) : last_(std::size_t(workers)) {}
  // Forgets all reports. Later reports are of the steps [first, end).
  void begin(std::int64_t first, std::int64_t end);
  // Ignores repeated reports, and reports of steps that `take` has returned.
  void add(int worker, std::int64_t step, const engine::Totals& share);
  // Returns how many workers have reported this step or a later one.
  int reported(std::int64_t step) const;
  // Returns the sums of all reports up to this step that no call returned before.
  engine::Totals take(std::int64_t step);

 private:
  std::vector<std::int64_t> last_;  // last reported step, by worker
  std::int64_t taken_ = -1, end_ = 0;
  std::map<std::pair<std::int64_t, int>, engine::Totals> shares_;  // by step and worker
};

}  // namespace lockstep::strategies
