// SPDX-License-Identifier: MIT
// Training between two stops, as each replica's thread runs it: take work, stage examples, forward,
// loss, backward, report. It knows only Strategy. One object serves all replicas of a process at
// once; a lock protects their shared data.
#pragma once
#include <mutex>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/optim/optimizer.h"
#include "engine/train/epoch_sums.h"
#include "engine/train/recording.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {

// Holds the progress of a fit. The replicas' threads write it under the loop's lock.
struct Progress {
  std::int64_t step = 0;         // done
  Clock::time_point saved_at{};  // last checkpoint or start; written between runs
  DataPosition position;
  int stopped = 0;  // a signal's number; 0: keep running
  double seconds = 0;
  StepReport last;  // last step with known sums (chief)
  EpochSums epoch;  // likewise
  std::vector<double> examples_per_second;
  Traffic traffic;                 // this process's replicas; with servers
  std::int64_t counted_steps = 0;  // steps in `traffic`; 0: no servers
  std::vector<StepClock> clocks;   // one per local replica, used by its thread
};

class TrainingLoop {
 public:
  TrainingLoop(Strategy& strategy, const Dataset& data, const optim::Optimizer& optimizer,
               const FitOptions& options, std::int64_t steps, int accumulate, std::uint64_t seed,
               Progress& progress);
  void run(Replica& replica);

 private:
  struct StepGroup;
  struct Pending;  // steps whose sums are not known yet
  struct Hooks;
  class Numbers;
  class Reporter;
  Totals step(Replica& replica, const Work& work, Pipeline& pipeline, const Hooks& hooks,
              const Recording& recording, Numbers& numbers);
  static double steps_of_all(const StepGroup& made, const StepReport& last);
  void announce(Replica& replica, const Pending& pending, const Totals& totals);
  void remember(const Work& work);

  Strategy& strategy_;
  const Dataset& data_;
  const optim::Optimizer& optimizer_;
  const FitOptions& options_;
  std::int64_t steps_;
  int accumulate_;
  std::uint64_t seed_;
  int first_rank_;
  Progress& progress_;
  bool voted_to_save_ = false;  // rank 0 alone
  std::mutex mutex_;
};

}  // namespace lockstep::engine
