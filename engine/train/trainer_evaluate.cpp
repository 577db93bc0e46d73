// SPDX-License-Identifier: MIT
// Evaluation: runs all batches of a data set forward through the graph.
#include "engine/train/evaluation_loop.h"
#include "engine/train/trainer.h"
#include "engine/train/work_queue.h"

namespace lockstep::engine {

Evaluation Trainer::evaluate(const Dataset& data, std::size_t global_batch) {
  require_possible_now("evaluate");
  return *forward_all(data, global_batch, nullptr, nullptr);
}

Evaluation Trainer::predict(const Dataset& data, std::size_t global_batch, const Outputs& outputs) {
  require_possible_now("predict");
  const bool within = fitting_;
  fitting_ = stepping_ = true;  // `outputs` must not call the trainer
  const auto over = [within](Trainer* trainer) {
    trainer->fitting_ = within;
    trainer->stepping_ = false;
  };
  const std::unique_ptr<Trainer, decltype(over)> end(this, over);
  return *forward_all(data, global_batch, &outputs, nullptr);
}

// Returns nothing if the surrounding fit was interrupted.
std::optional<Evaluation> Trainer::forward_all(const Dataset& data, std::size_t batch,
                                               const Outputs* outputs, const FitOptions* fit) {
  check(data);
  if (strategy_.follows()) return Evaluation{.loss = kNaN, .accuracy = kNaN};
  require_weights();
  if (batch_ == 0) {
    open(batch == 0 ? kEvaluationBatch : batch, 1, "");
    broken_ = false;
  }
  WorkSpec work;
  work.examples = data.size();
  work.global_batch = batch == 0 ? batch_ : std::min(batch, batch_);
  work.steps = batches_of_epoch(data.size(), work.global_batch);
  work.training = false;
  strategy_.assign(work);
  EvaluationLoop loop(strategy_, data, accumulate_, outputs, fit);
  strategy_.run([&](Replica& replica) { loop.run(replica); });
  return loop.result();
}

}  // namespace lockstep::engine
