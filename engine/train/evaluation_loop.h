// SPDX-License-Identifier: MIT
// An evaluation as each replica's thread runs it: forward, loss, and the numbers of each batch. One
// object serves all replicas of a process at once; a lock protects their shared data.
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
  // Makes the replicas vote between batches on whether `fit`'s interrupt is set, if `fit` is not
  // null.
  EvaluationLoop(Strategy& strategy, const Dataset& data, int accumulate,
                 const Trainer::Outputs* outputs, const FitOptions* fit);
  void run(Replica& replica);
  // Returns the result after `run`; empty if all replicas were interrupted before the same batch.
  // Collective, outside of the strategy's run.
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
  std::vector<ScoredExample> scores_;  // this process's scores, with two classes
  std::optional<Evaluation> result_;
};

}  // namespace lockstep::engine
