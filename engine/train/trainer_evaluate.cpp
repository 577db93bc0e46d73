// SPDX-License-Identifier: MIT
// Evaluation: runs all batches of a data set forward through the graph.
#include "engine/base/bfloat16.h"
#include "engine/base/half.h"
#include "engine/train/evaluation_loop.h"
#include "engine/train/trainer.h"
#include "engine/train/work_queue.h"

namespace lockstep::engine {
namespace {

template <class Number>
std::vector<double> numbers(const Piece& piece) {
  const auto* const values = reinterpret_cast<const Number*>(piece.data);
  return {values, values + piece.range.size()};
}

std::vector<double> numbers_of(const Piece& piece) {
  switch (piece.dtype) {
    case DType::kFloat64:
      return numbers<double>(piece);
    case DType::kFloat16:
      return numbers<Half>(piece);
    case DType::kBFloat16:
      return numbers<BFloat16>(piece);
    default:
      return numbers<float>(piece);
  }
}

}  // namespace

Evaluation Trainer::evaluate(const Dataset& data, std::size_t global_batch) {
  require_possible_now("evaluate");
  return *forward_all(data, global_batch, nullptr, nullptr);
}

Evaluation Trainer::predict(const Dataset& data, std::size_t global_batch, const Outputs& outputs) {
  require_possible_now("predict");
  require(bool(outputs), "model {}: predict needs a function that takes the outputs",
          graph_.name());
  const bool within = fitting_;
  fitting_ = stepping_ = true;  // `outputs` must not call the trainer
  const auto over = [within](Trainer* trainer) {
    trainer->fitting_ = within;
    trainer->stepping_ = false;
  };
  const std::unique_ptr<Trainer, decltype(over)> end(this, over);
  return *forward_all(data, global_batch, &outputs, nullptr);
}

std::vector<double> Trainer::weights(std::string_view parameter) {
  require_possible_now("weights");
  require_weights();
  require(batch_ > 0, "model {}: weights before fit or restore", graph_.name());
  std::vector<double> values;
  std::string known;
  strategy_.run([&](Replica& replica) {
    if (replica.rank != strategy_.membership().rank) return;
    for (const Piece& piece : strategy_.pieces_to_restore(replica)) {
      const bool whole = piece.range == Range{0, piece.shape.elements()};
      if (piece.name == parameter && whole && values.empty()) values = numbers_of(piece);
      known += (known.empty() ? "" : ", ") + piece.name;
    }
  });
  require(!known.empty(), "model {}: servers keep the weights; read them from a checkpoint",
          graph_.name());
  require(!values.empty(), "model {} has no parameter {}; it has {}", graph_.name(), parameter,
          known);
  return values;
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
