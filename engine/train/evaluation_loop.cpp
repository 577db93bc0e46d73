// SPDX-License-Identifier: MIT
#include "engine/train/evaluation_loop.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/ops/host_view.h"
#include "engine/train/accuracy.h"
#include "engine/train/recording.h"
#include "engine/train/staging.h"
#include "engine/train/top_classes.h"
#include "engine/train/work_queue.h"

namespace lockstep::engine {
namespace {

constexpr std::size_t kTop = 5;        // largest outputs
constexpr double kBetweenVotes = 0.1;  // seconds, on the slowest replica

// Returns the correct answers among the rows in use; 0 if the loss does not count them.
double count_correct(Replica& r) {
  const Tensor correct = r.graph.correct();
  return correct ? r.context->ops->batch_sum(r.context->state, correct) : 0;
}

// Returns the rows in use whose class is among the kTop largest outputs.
std::size_t count_top(Replica& r) {
  const std::size_t rows = std::size_t(r.state.examples);
  const HostView output(*r.context->ops, r.graph.output(), rows);
  const HostView target(*r.context->ops, r.graph.target(), rows);
  return count_in_top(output.tensor(), target.tensor(), rows, kTop);
}

// Returns whether there are more classes than `best`, so that the top `best` outputs omit some.
bool has_top(const Replica& r, std::size_t best) {
  return r.graph.correct() && r.graph.target().columns() == 1 && r.graph.output().columns() > best;
}

}  // namespace

EvaluationLoop::EvaluationLoop(Strategy& strategy, const Dataset& data, int accumulate,
                               const Trainer::Outputs* outputs, const FitOptions* fit)
    : strategy_(strategy), data_(data), accumulate_(accumulate), outputs_(outputs), fit_(fit) {}

// Holds the schedule of the next vote, which waits for all replicas: the batches until then, and
// the start of the current interval.
struct EvaluationLoop::Vote {
  std::int64_t batches = 1, left = 0;
  Clock::time_point since = Clock::now();
};

// All replicas see the same numbers, so they stop before the same batch and vote again before the
// same batch.
bool EvaluationLoop::interrupted(Replica& r, Vote& vote) const {
  if (fit_ == nullptr || vote.left-- > 0) return false;
  const bool heard = fit_->interrupt != nullptr && fit_->interrupt->load() != 0;
  const double seconds = std::chrono::duration<double>(Clock::now() - vote.since).count();
  const double mine[] = {heard ? 1.0 : 0.0, seconds};
  const std::vector<double> all = strategy_.gather(r, mine, "evaluation");
  double votes = 0, slowest = 0;
  for (std::size_t i = 0; i < all.size(); i += 2)
    votes += all[i], slowest = std::max(slowest, all[i + 1]);
  if (slowest < kBetweenVotes / 2) {
    vote.batches *= 2;
  } else if (slowest > kBetweenVotes) {
    vote.batches =
        std::max<std::int64_t>(1, std::int64_t(double(vote.batches) * kBetweenVotes / slowest));
  }
  vote.left = vote.batches - 1;
  vote.since = Clock::now();
  return votes > 0;
}

void EvaluationLoop::run(Replica& r) {
  const ProfilerRange whole(strategy_.profiler(), "evaluation");
  const Recording recording(nullptr, strategy_.profiler(), r, accumulate_);
  r.context->training = false;
  strategy_.average_statistics(r, "averaging statistics for an evaluation");
  PipelineOptions options = pipeline_options(0, false, 1);
  options.plain = true;
  Pipeline pipeline(data_, options);
  WorkQueue queue(strategy_, r, pipeline, accumulate_);
  double sums[4] = {};  // loss, correct, examples, top-5
  const bool two_classes = data_.classes() == 2 && r.graph.correct() &&
                           r.graph.target().columns() == 1 && r.graph.output().columns() == 2;
  Vote vote;
  while (const std::optional<Work> work = queue.next()) {
    if (interrupted(r, vote)) return;
    for (int part = 0; part < accumulate_; ++part) {
      stage(r, pipeline.take(), work->step, work->global_batch, 0);
      strategy_.staged(r);
      r.graph.forward(*r.context, [&](Range range) { strategy_.before_forward(r, range); });
      r.graph.evaluate_loss(*r.context, false);
      sums[0] += r.context->ops->batch_sum(r.context->state, r.graph.losses());
      sums[1] += count_correct(r);
      sums[2] += double(r.state.examples);
      if (has_top(r, kTop)) sums[3] += double(count_top(r));
      if (two_classes) score(r);
      if (outputs_ != nullptr) pass_on(r);
    }
  }
  const std::vector<double> all = strategy_.gather(r, sums, "evaluation");
  double loss = 0, correct = 0, examples = 0, top = 0;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    loss += all[i], correct += all[i + 1], examples += all[i + 2], top += all[i + 3];
  }
  std::scoped_lock lock(mutex_);
  result_ = {loss / examples, accuracy(r, correct, examples), std::uint64_t(examples)};
  if (has_top(r, kTop)) result_->top5 = accuracy(r, top, examples);
  two_classes_ = two_classes;
}

void EvaluationLoop::score(Replica& r) {
  const std::size_t rows = std::size_t(r.state.examples);
  const HostView output(*r.context->ops, r.graph.output(), rows);
  const HostView target(*r.context->ops, r.graph.target(), rows);
  std::scoped_lock lock(mutex_);
  append_scores(output.tensor(), target.tensor(), rows, scores_);
}

// The chief sorts all scores and sends the area to the others.
std::optional<Evaluation> EvaluationLoop::result() {
  if (!result_ || !two_classes_) return result_;
  std::vector<ScoredExample> all;
  for (const std::string& bytes :
       strategy_.collect(score_bytes(std::exchange(scores_, {})), "scores of an evaluation"))
    append_scores(bytes, all);
  const double area[] = {area_under_curve(std::move(all))};
  strategy_.run([&](Replica& r) {
    const std::vector<double> told = strategy_.gather(r, area, "evaluation");
    std::scoped_lock lock(mutex_);
    result_->auc = told[0];
  });
  return result_;
}

void EvaluationLoop::pass_on(Replica& r) {
  const std::size_t rows = std::size_t(r.state.examples);
  const HostView view(*r.context->ops, r.graph.output(), rows);
  const Tensor& output = view.tensor();
  const std::size_t columns = r.graph.output().columns();
  std::vector<double> row(columns);
  std::vector<std::int64_t> ids(rows);
  r.context->ops->read(reinterpret_cast<const std::byte*>(r.graph.ids()), ids.data(),
                       rows * sizeof(std::int64_t));
  std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t at = i * columns;
    for (std::size_t c = 0; c < columns; ++c) row[c] = number_at(output.data, output.dtype, at + c);
    (*outputs_)(ids[i], row);
  }
}

}  // namespace lockstep::engine
