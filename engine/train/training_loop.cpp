// SPDX-License-Identifier: MIT
#include "engine/train/training_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <optional>
#include <utility>

#include "engine/train/accuracy.h"
#include "engine/train/staging.h"
#include "engine/train/work_queue.h"

namespace lockstep::engine {
namespace {

using Part = Recording::Part;

}  // namespace

// Holds the hooks, which are created once because that may allocate.
struct TrainingLoop::Hooks {
  Graph::Hook before, ready, nothing;
};

// Holds the sums of losses and correct answers of each micro-batch, for a step and the one before
// it. Kernels may write them long after they were queued.
class TrainingLoop::Numbers {
 public:
  Numbers(Replica& replica, int parts, bool ahead)
      : replica_(replica),
        parts_(parts),
        ahead_(ahead),
        sums_(replica.context->ops->allocate_shared(2 * 2 * std::size_t(parts) * sizeof(double))) {}

  // Returns whether a step's numbers are read after the next step is queued.
  bool ahead() const { return ahead_; }
  // Queues the sums of a micro-batch whose loss is computed.
  void ask(std::int64_t step, int part) {
    Ops& ops = *replica_.context->ops;
    double* const to = at(step, part);
    to[1] = 0;  // if the loss counts no correct answers
    const Tensor losses = replica_.graph.losses();
    if (const Tensor correct = replica_.graph.correct()) {
      ops.queue_batch_sums(replica_.context->state, losses, correct, to);
    } else {
      ops.queue_batch_sum(replica_.context->state, losses, to);
    }
    if (!ahead_) ops.synchronize();
    if (!ahead_ && !std::isfinite(to[0])) {
      fail(Code::kInvalid, "the loss is not finite at step {}, on rank {}: {}", step + 1,
           replica_.rank, find_not_finite(replica_));
    }
  }
  // Marks the end of a step's queued work.
  void mark(std::int64_t step) {
    if (ahead_) replica_.context->ops->mark_kernels(int(step % 2));
  }
  // Adds a step's numbers to `totals`. Waits for its kernels if they may not be done.
  void add_to(Totals& totals, std::int64_t step) {
    if (ahead_) replica_.context->ops->wait_for_kernels(int(step % 2));
    for (int part = 0; part < parts_; ++part) {
      totals.loss += at(step, part)[0];
      totals.correct += at(step, part)[1];
    }
    if (!std::isfinite(totals.loss)) {
      require(false, Option::kStepsAhead,
              "the loss is not finite at step {}, on rank {}; the next step was queued already: to "
              "see where it began, continue from the last checkpoint with 0 steps ahead",
              step + 1, replica_.rank);
    }
  }

 private:
  double* at(std::int64_t step, int part) const {
    return reinterpret_cast<double*>(sums_.data()) + 2 * (step % 2 * parts_ + part);
  }
  Replica& replica_;
  int parts_;
  bool ahead_;
  Buffer sums_;
};

// Holds the steps that are reported together.
struct TrainingLoop::StepGroup {
  Work work;  // last step's, as is `rate`
  double rate = 0;
  Totals mine = {};  // sums over these steps
  std::int64_t steps = 1;
  std::size_t examples = 0;  // all replicas' examples

  void add(const StepGroup& next) {
    work = next.work;
    rate = next.rate;
    mine.loss += next.mine.loss;
    mine.correct += next.mine.correct;
    mine.examples += next.mine.examples;
    mine.stop += next.mine.stop;
    mine.save += next.mine.save;
    steps += next.steps;
    examples += next.examples;
  }
};

// Returns the steps of all replicas per step of this one, which is above one if others work on
// steps of their own and do not report them.
double TrainingLoop::steps_of_all(const StepGroup& made, const StepReport& last) {
  if (last.examples == 0) return 1;
  return std::max(1.0, double(made.work.step - last.step) / double(made.steps));
}

struct TrainingLoop::Pending {
  StepGroup made;
  double examples_per_second = 0;
  double seconds = 0, waited = 0, messages = 0;  // per step
  std::optional<Traffic> traffic;
};

TrainingLoop::TrainingLoop(Strategy& strategy, const Dataset& data,
                           const optim::Optimizer& optimizer, const FitOptions& options,
                           std::int64_t steps, int accumulate, std::uint64_t seed,
                           Progress& progress)
    : strategy_(strategy),
      data_(data),
      optimizer_(optimizer),
      options_(options),
      steps_(steps),
      accumulate_(accumulate),
      seed_(seed),
      first_rank_(strategy.membership().rank),
      progress_(progress) {}

// Runs the micro-batches of one replica's part of one step. Gradients accumulate over them, and the
// last one reports them as ready. The result lacks the sums of losses and correct answers.
Totals TrainingLoop::step(Replica& r, const Work& work, Pipeline& pipeline, const Hooks& hooks,
                          const Recording& recording, Numbers& numbers) {
  const double rate = optimizer_.schedule.rate(optimizer_.rate, work.step, steps_);
  Totals mine;
  for (int part = 0; part < accumulate_; ++part) {
    {
      const auto span = recording.span(Part::kInput);
      stage(r, pipeline.take(), work.step, work.global_batch, rate);
    }
    {
      const auto span = recording.span(Part::kBeforeForward);
      strategy_.staged(r);
    }
    const bool last = part + 1 == accumulate_;
    const auto queue = [&] {
      r.graph.forward(*r.context, hooks.before);
      {
        const auto span = recording.span(Part::kLoss);
        r.graph.evaluate_loss(*r.context, true);
        if (!numbers.ahead()) numbers.ask(work.step, part);
      }
      r.graph.backward(*r.context, part > 0, last ? hooks.ready : hooks.nothing);
      if (!last) return;
      const auto span = recording.span(Part::kFinish);
      strategy_.finish(r);
    };
    if (numbers.ahead() && options_.profile == nullptr) {
      strategy_.compute(r, part, work.global_batch,
                        std::ref(queue));  // by reference: does not allocate
    } else {
      queue();
    }
    if (numbers.ahead()) numbers.ask(work.step, part);
  }
  numbers.mark(work.step);
  mine.examples = double(work.local_batch.size());
  if (options_.interrupt != nullptr && options_.interrupt->load() != 0) mine.stop = 1;
  const std::chrono::duration<double> since_saved = Clock::now() - progress_.saved_at;
  const bool by_time = !options_.checkpoints.empty() && options_.every_seconds > 0;
  // One vote: the sums of the next step come after the save, and would ask for another one.
  if (r.rank == 0 && by_time && !voted_to_save_ && since_saved.count() >= options_.every_seconds) {
    voted_to_save_ = true;
    mine.save = 1;
  }
  return mine;
}

// Reports one replica's steps. A step's times are sent with the next step's report and return with
// the report after that. The first report therefore has none, and those of the last step stay
// unknown.
class TrainingLoop::Reporter {
 public:
  Reporter(TrainingLoop& loop, Replica& replica, const Recording& recording)
      : loop_(loop),
        strategy_(loop.strategy_),
        replica_(replica),
        recording_(recording),
        clock_(loop.progress_.clocks[std::size_t(replica.rank - loop.first_rank_)]),
        waited_before_(strategy_.waited_seconds(replica)),
        messages_before_(strategy_.messages_seconds(replica)),
        traffic_before_(strategy_.traffic(replica)) {}

  // Ends a step, which may be reported with later ones. Returns false if all replicas stop.
  bool end_step(const StepGroup& made) {
    if (execution_) {
      execution_->add(made);
    } else {
      execution_ = made;
    }
    if (execution_->steps < loop_.options_.steps_per_execution) return true;
    return report(*std::exchange(execution_, std::nullopt));
  }

  // Ends the last step.
  void finish() {
    if (execution_) report(*execution_);
    const Totals last = [&] {
      const auto span = recording_.span(Part::kSettle);
      return strategy_.synchronize(replica_);
    }();
    if (!pending_) return;
    learn(last);
    const auto [seconds, waited, messages] = lap();  // rest of the last step
    const double steps = double(pending_->made.steps);
    pending_->seconds += seconds / steps;
    pending_->waited += waited / steps;
    pending_->messages += messages / steps;
    loop_.announce(replica_, *pending_, last);
  }

 private:
  bool report(StepGroup made) {
    if (pending_) made.mine.waited = pending_->waited, made.mine.messages = pending_->messages;
    const Totals last = [&] {
      const auto span = recording_.span(Part::kReport);
      return strategy_.report(replica_, made.work.step, made.mine);
    }();
    learn(last);
    ++reports_;
    if (pending_) loop_.announce(replica_, *pending_, last);
    const auto [seconds, waited, messages] = lap();
    const double steps = double(made.steps);
    pending_ = {made,
                double(made.examples) / seconds,
                seconds / steps,
                waited / steps,
                messages / steps,
                traffic_since()};
    // All replicas see the same sums, so all stop here.
    return last.stop == 0 && last.save == 0;
  }

  void learn(const Totals& totals) {
    if (reports_ >= 2) clock_.add_least(totals.waited, totals.messages);
  }

  // Returns the seconds since the last call: in total, those that this thread waited, and those in
  // which messages were under way.
  std::array<double, 3> lap() {
    const auto now = Clock::now();
    const double waited = strategy_.waited_seconds(replica_);
    const double messages = strategy_.messages_seconds(replica_);
    const std::array<double, 3> since{std::chrono::duration<double>(now - before_).count(),
                                      waited - waited_before_, messages - messages_before_};
    before_ = now, waited_before_ = waited, messages_before_ = messages;
    return since;
  }

  std::optional<Traffic> traffic_since() {
    const std::optional<Traffic> now = strategy_.traffic(replica_);
    std::optional<Traffic> since;
    if (now && traffic_before_) since = *now - *traffic_before_;
    traffic_before_ = now;
    return since;
  }

  TrainingLoop& loop_;
  Strategy& strategy_;
  Replica& replica_;
  const Recording& recording_;
  StepClock& clock_;
  std::optional<StepGroup> execution_;  // not reported yet
  std::optional<Pending> pending_;
  int reports_ = 0;
  Clock::time_point before_ = Clock::now();
  double waited_before_, messages_before_;
  std::optional<Traffic> traffic_before_;
};

void TrainingLoop::run(Replica& r) {
  r.context->training = true;
  PipelineOptions reading = pipeline_options(seed_, options_.shuffle, options_.prefetch_threads);
  if (!r.context->ops->in_host_memory()) {
    reading.memory = [&](std::size_t bytes) { return r.context->ops->allocate_shared(bytes); };
  }
  Pipeline pipeline(data_, reading);
  WorkQueue queue(strategy_, r, pipeline, accumulate_);
  Numbers numbers(r, accumulate_, options_.steps_ahead > 0 && !r.context->ops->in_host_memory());
  const Recording recording(options_.profile, strategy_.profiler(), r, accumulate_);
  const Hooks hooks{[&](Range range) {
                      const auto span = recording.span(Part::kBeforeForward);
                      strategy_.before_forward(r, range);
                    },
                    [&](Range range) {
                      const auto span = recording.span(Part::kGradientReady);
                      strategy_.gradient_ready(r, range);
                    },
                    [](Range) {}};
  Reporter reporter(*this, r, recording);
  const auto end_step = [&](StepGroup& made) {
    numbers.add_to(made.mine, made.work.step);
    return reporter.end_step(made);
  };
  std::optional<StepGroup> queued;  // while the host is a step ahead
  for (bool go_on = true; go_on;) {
    const std::optional<Work> work = queue.next();
    if (!work) break;
    const auto whole = recording.step(work->step);
    std::optional<StepGroup> made(StepGroup{.work = *work, .examples = work->global_batch});
    made->mine = step(r, *work, pipeline, hooks, recording, numbers);
    made->rate = r.state.rate;
    if (numbers.ahead()) std::swap(made, queued);
    if (made) go_on = end_step(*made);
    remember(*work);
  }
  if (queued) end_step(*queued);
  reporter.finish();
}

void TrainingLoop::remember(const Work& work) {
  std::scoped_lock lock(mutex_);
  if (work.step < progress_.step) return;
  progress_.step = work.step + 1;
  progress_.position = work.after;
}

void TrainingLoop::announce(Replica& r, const Pending& pending, const Totals& totals) {
  progress_.clocks[std::size_t(r.rank - first_rank_)].add(pending.seconds, pending.waited,
                                                          pending.messages);
  StepReport report;
  {
    std::scoped_lock lock(mutex_);
    if (totals.stop > 0 && progress_.stopped == 0) progress_.stopped = SIGTERM;
    if (pending.traffic) {
      progress_.traffic += *pending.traffic;
      progress_.counted_steps += pending.made.steps;
    }
    if (r.rank != 0) return;
    report.step = pending.made.work.step;
    report.steps = steps_;
    report.epoch = pending.made.work.epoch;
    report.rate = pending.made.rate;
    report.loss = totals.examples > 0 ? totals.loss / totals.examples : 0;
    report.accuracy = accuracy(r, totals.correct, totals.examples);
    report.examples = std::size_t(totals.examples);
    report.examples_per_second =
        pending.examples_per_second * steps_of_all(pending.made, progress_.last);
    report.waited = pending.waited;
    report.traffic = pending.traffic;
    report.loss_scale = totals.loss_scale;
    report.skipped_steps = std::int64_t(totals.skipped);
    progress_.examples_per_second.push_back(pending.examples_per_second);
    progress_.epoch.add(report, progress_.last.examples > 0);
    progress_.last = report;
  }
  if (options_.on_step) options_.on_step(report);
}

}  // namespace lockstep::engine
