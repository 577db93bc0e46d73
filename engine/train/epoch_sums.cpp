// SPDX-License-Identifier: MIT
#include "engine/train/epoch_sums.h"

namespace lockstep::engine {

void EpochSums::add(const StepReport& report, bool timed) {
  const double examples = double(report.examples);
  examples_ += examples;
  loss_ += examples * report.loss;
  accuracy_ += examples * report.accuracy;
  if (!timed || report.examples_per_second <= 0) return;
  timed_ += examples;
  seconds_ += examples / report.examples_per_second;
}

EpochReport EpochSums::take(std::int64_t number, bool resumed) {
  EpochReport report{.number = number, .resumed = resumed};
  report.examples = std::size_t(examples_);
  if (examples_ > 0) report.loss = loss_ / examples_, report.accuracy = accuracy_ / examples_;
  if (seconds_ > 0) report.examples_per_second = timed_ / seconds_;
  *this = {};
  return report;
}

}  // namespace lockstep::engine
