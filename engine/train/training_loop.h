// SPDX-License-Identifier: MIT
// Training between two stops, as the thread of each replica runs it: take work, bring in examples,
// forward, loss, backward, report. Knows Strategy and nothing behind it. One object serves all
// replicas of a process at once; what they share has a lock.
#pragma once
#include <mutex>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/optim/optimizer.h"
#include "engine/train/recording.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {

// How far a fit has come. Written by the replicas' threads under the loop's lock.
struct Progress {
  std::int64_t step = 0;         // done
  Clock::time_point saved_at{};  // the last checkpoint, or the beginning; written between runs
  DataPosition position;
  int stopped = 0;  // a signal's number: somebody voted to stop
  double seconds = 0;
  StepReport last;  // of the last step whose sums are known (on the chief)
  std::vector<double> images_per_second;
  Traffic traffic;                 // of this process's replicas with servers, in so many steps
  std::int64_t counted_steps = 0;  // of all of them; 0: there are no servers
  std::vector<StepClock> clocks;   // of this process's replicas; each is its thread's alone
};

class TrainingLoop {
 public:
  TrainingLoop(Strategy& strategy, const Dataset& data, const optim::Optimizer& optimizer,
               const FitOptions& options, std::int64_t steps, int accumulate, std::uint64_t seed,
               Progress& progress);
  void run(Replica& replica);

 private:
  struct StepGroup;
  struct Pending;  // steps whose sums over all replicas are not known yet
  struct Hooks;
  class Numbers;
  class Reporter;
  Totals step(Replica& replica, const Work& work, Pipeline& pipeline, const Hooks& hooks,
              const Recording& recording, Numbers& numbers);
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
  std::mutex mutex_;
};

}  // namespace lockstep::engine
