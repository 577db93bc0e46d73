// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/step_totals.h"

#include <algorithm>

namespace lockstep::strategies {

void StepTotals::begin(std::int64_t first, std::int64_t end) {
  last_.assign(last_.size(), first - 1);
  taken_ = first - 1;
  end_ = end;
  shares_.clear();
}

void StepTotals::add(int worker, std::int64_t step, const engine::Totals& share) {
  std::int64_t& last = last_[std::size_t(worker)];
  if (step <= last || step >= end_) return;
  last = step;
  if (step > taken_) shares_[{step, worker}] = share;
}

int StepTotals::reported(std::int64_t step) const {
  return int(
      std::count_if(last_.begin(), last_.end(), [&](std::int64_t last) { return last >= step; }));
}

// Adds in the order of steps and workers, so that the same shares have the same sums.
engine::Totals StepTotals::take(std::int64_t step) {
  engine::Totals sums;
  while (!shares_.empty() && shares_.begin()->first.first <= step) {
    const engine::Totals& share = shares_.begin()->second;
    sums.loss += share.loss;
    sums.correct += share.correct;
    sums.examples += share.examples;
    shares_.erase(shares_.begin());
  }
  taken_ = std::max(taken_, step);
  return sums;
}

}  // namespace lockstep::strategies
