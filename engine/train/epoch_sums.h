// SPDX-License-Identifier: MIT
// Sums of the reports of an epoch's steps, from which its means follow. Reports are weighted by
// their examples, since they may cover different numbers of them, as for the last batch of an
// epoch. One thread at a time.
#pragma once
#include <cstdint>

#include "engine/train/trainer.h"

namespace lockstep::engine {

class EpochSums {
 public:
  // Adds a report. `timed`: its rate counts.
  void add(const StepReport& report, bool timed);
  // Returns the means over the reports since the last call. `number` and `resumed` are copied.
  EpochReport take(std::int64_t number, bool resumed);

 private:
  double examples_ = 0, loss_ = 0, accuracy_ = 0;
  double timed_ = 0, seconds_ = 0;  // examples whose rate counts
};

}  // namespace lockstep::engine
