// SPDX-License-Identifier: MIT
// An evaluation, as the thread of each replica runs it: forward, loss, and the numbers of each
// batch. One object serves all replicas of a process at once; what they share has a lock.
#pragma once
#include <mutex>
#include <optional>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/train/area_under_curve.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {

class EvaluationLoop {
 public:
  // With `fit`, all replicas together look between batches whether its interrupt was set.
  EvaluationLoop(Strategy& strategy, const Dataset& data, int accumulate,
                 const Trainer::Outputs* outputs, const FitOptions* fit);
  void run(Replica& replica);
  // After run; collective, outside of the strategy's run. Nothing: it was interrupted, on all
  // replicas before the same batch.
  std::optional<Evaluation> result();

 private:
  struct Vote;
  bool interrupted(Replica& replica, Vote& vote) const;
  void score(Replica& replica);
  void pass_on(Replica& replica);
  Strategy& strategy_;
  const Dataset& data_;
  int accumulate_;
  const Trainer::Outputs* outputs_;
  const FitOptions* fit_;
  std::mutex mutex_;
  bool two_classes_ = false;
  std::vector<ScoredExample> scores_;  // of this process, where there are two classes
  std::optional<Evaluation> result_;
};

}  // namespace lockstep::engine
