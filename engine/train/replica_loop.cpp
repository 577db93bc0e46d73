// SPDX-License-Identifier: MIT
#include "engine/train/replica_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <limits>
#include <utility>

#include "engine/ops/host_view.h"
#include "engine/train/staging.h"
#include "engine/train/top_classes.h"

namespace lockstep::engine {
namespace {

using Part = Recording::Part;

constexpr std::size_t kTop = 5;  // of the largest outputs of an evaluation

constexpr double kBetweenVotes = 0.1;  // seconds of an evaluation, on the slowest replica

constexpr std::size_t kAhead = 2;  // steps whose examples are asked for before they are needed

// Work in order, with the examples of the next steps on their way. Allocates nothing.
class WorkQueue {
 public:
  WorkQueue(Strategy& strategy, Replica& replica, Pipeline& pipeline, int parts)
      : strategy_(strategy), replica_(replica), pipeline_(pipeline), parts_(parts) {}
  std::optional<Work> next() {
    while (!over_ && asked_ - given_ < kAhead) {
      const std::optional<Work> work = strategy_.next(replica_);
      over_ = !work.has_value();
      if (over_) break;
      for (int part = 0; part < parts_; ++part) {
        pipeline_.request(work->epoch, share_of(work->mine, part, parts_));
      }
      ahead_[asked_++ % kAhead] = *work;
    }
    if (asked_ == given_) return {};
    return ahead_[given_++ % kAhead];
  }

 private:
  Strategy& strategy_;
  Replica& replica_;
  Pipeline& pipeline_;
  int parts_;
  bool over_ = false;
  std::array<Work, kAhead> ahead_;
  std::size_t asked_ = 0, given_ = 0;
};

PipelineOptions pipeline_options(std::uint64_t seed, bool shuffle, int threads) {
  return {.seed = seed, .shuffle = shuffle, .threads = threads, .in_place = threads == 0};
}

// Right answers among the rows in use; 0 where the loss counts none.
double count_correct(Replica& r) {
  const Tensor correct = r.graph.correct();
  return correct ? r.context->ops->batch_sum(r.context->state, correct) : 0;
}

// How many of the rows in use have their class among the kTop largest outputs.
std::size_t count_top(Replica& r) {
  const std::size_t rows = std::size_t(r.state.examples);
  const HostView output(*r.context->ops, r.graph.output(), rows);
  const HostView target(*r.context->ops, r.graph.target(), rows);
  return count_in_top(output.tensor(), target.tensor(), rows, kTop);
}

// Whether it tells more than the accuracy, and less than that there are classes.
bool has_top(const Replica& r, std::size_t best) {
  return r.graph.correct() && r.graph.target().columns() == 1 && r.graph.output().columns() > best;
}

double accuracy(const Replica& r, double correct, double examples) {
  if (!r.graph.correct()) return std::numeric_limits<double>::quiet_NaN();
  return examples > 0 ? correct / examples : 0;
}

}  // namespace

LoopBytes loop_bytes(const Dataset& data) {
  const std::size_t numbers = data.input_shape().elements() + data.target_columns();
  constexpr std::size_t kOrders = 2;  // of two epochs, since requests run ahead over the border
  return {(kAhead + 1) * (numbers * sizeof(float) + sizeof(std::int64_t)),
          std::size_t(data.size()) * kOrders * sizeof(std::uint64_t)};
}

// Made once, since making one may allocate.
struct TrainingLoop::Hooks {
  Graph::Hook before, ready, nothing;
};

// The sums of losses and of right answers of each micro-batch, of a step and of the one before it:
// kernels may write them long after they were queued.
class TrainingLoop::Numbers {
 public:
  Numbers(Replica& replica, int parts, bool ahead)
      : replica_(replica),
        parts_(parts),
        ahead_(ahead),
        sums_(replica.context->ops->allocate_shared(2 * 2 * std::size_t(parts) * sizeof(double))) {}

  // Whether a step's numbers are read when the next one is queued.
  bool ahead() const { return ahead_; }
  // Queues those of a part that is at its loss.
  void ask(std::int64_t step, int part) {
    Ops& ops = *replica_.context->ops;
    double* const to = at(step, part);
    to[1] = 0;  // where the loss counts none
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
  // All of the step is queued.
  void mark(std::int64_t step) {
    if (ahead_) replica_.context->ops->mark_kernels(int(step % 2));
  }
  // Waits for the step's kernels, where they may not be done.
  void add_to(Totals& totals, std::int64_t step) {
    if (ahead_) replica_.context->ops->wait_for_kernels(int(step % 2));
    for (int part = 0; part < parts_; ++part) {
      totals.loss += at(step, part)[0];
      totals.correct += at(step, part)[1];
    }
    if (!std::isfinite(totals.loss)) {
      require(false, Option::kStepsAhead,
              "the loss is not finite at step {}, on rank {}; the next step was queued already: to "
              "see where it began, go on from the last checkpoint with 0 steps ahead",
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

// Steps that are reported together.
struct TrainingLoop::Made {
  Work work;  // of the last one, as is `rate`
  double rate = 0;
  Totals mine = {};  // sums over them
  std::int64_t steps = 1;
  std::size_t whole = 0;  // examples over all replicas

  void add(const Made& next) {
    work = next.work;
    rate = next.rate;
    mine.loss += next.mine.loss;
    mine.correct += next.mine.correct;
    mine.examples += next.mine.examples;
    mine.stop += next.mine.stop;
    mine.save += next.mine.save;
    steps += next.steps;
    whole += next.whole;
  }
};

struct TrainingLoop::Pending {
  Made made;
  double images_per_second = 0;
  double seconds = 0, waited = 0, messages = 0;  // of a step
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

// The micro-batches of one replica's part of one step. Gradients are added up over them; the last
// one announces them. What it returns lacks the numbers.
Totals TrainingLoop::step(Replica& r, const Work& work, Pipeline& pipeline, const Hooks& hooks,
                          const Recording& recording, Numbers& numbers) {
  const double rate = optimizer_.schedule.rate(optimizer_.rate, work.step, steps_);
  Totals mine;
  for (int part = 0; part < accumulate_; ++part) {
    {
      const auto span = recording.span(Part::kInput);
      stage(r, pipeline.take(), work.step, work.whole, rate);
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
      strategy_.compute(r, part, work.whole, std::ref(queue));  // by reference: takes no memory
    } else {
      queue();
    }
    if (numbers.ahead()) numbers.ask(work.step, part);
  }
  numbers.mark(work.step);
  mine.examples = double(work.mine.size());
  if (options_.interrupt != nullptr && options_.interrupt->load() != 0) mine.stop = 1;
  const std::chrono::duration<double> since_saved = Clock::now() - progress_.saved_at;
  const bool by_time = !options_.checkpoints.empty() && options_.every_seconds > 0;
  if (r.rank == 0 && by_time && since_saved.count() >= options_.every_seconds) mine.save = 1;
  return mine;
}

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
  std::optional<Pending> pending;
  auto before = Clock::now();
  double waited_before = strategy_.waited_seconds(r);
  double messages_before = strategy_.messages_seconds(r);
  std::optional<Traffic> traffic_before = strategy_.traffic(r);
  // Seconds since the last call: all, those that this thread waited, and those in which messages
  // were under way.
  const auto lap = [&] {
    const auto now = Clock::now();
    const double waited = strategy_.waited_seconds(r), messages = strategy_.messages_seconds(r);
    const std::array<double, 3> since{std::chrono::duration<double>(now - before).count(),
                                      waited - waited_before, messages - messages_before};
    before = now, waited_before = waited, messages_before = messages;
    return since;
  };
  const auto traffic_since = [&] {
    const std::optional<Traffic> now = strategy_.traffic(r);
    std::optional<Traffic> since;
    if (now && traffic_before) since = *now - *traffic_before;
    traffic_before = now;
    return since;
  };
  // A step's times go to all with the next step's report, and come back with the report after
  // that. So the first report has none; and none are known of the last step.
  int reports = 0;
  StepClock& clock = progress_.clocks[std::size_t(r.rank - first_rank_)];
  const auto learn = [&](const Totals& totals) {
    if (reports >= 2) clock.add_least(totals.waited, totals.messages);
  };
  // False when everybody stops.
  const auto report = [&](Made made) {
    if (pending) made.mine.waited = pending->waited, made.mine.messages = pending->messages;
    const Totals last = [&] {
      const auto span = recording.span(Part::kReport);
      return strategy_.report(r, made.work.step, made.mine);
    }();
    learn(last);
    ++reports;
    if (pending) announce(r, *pending, last);
    const auto [seconds, waited, messages] = lap();
    const double steps = double(made.steps);
    pending = {made,
               double(made.whole) / seconds,
               seconds / steps,
               waited / steps,
               messages / steps,
               traffic_since()};
    // Everybody sees the same sums, so everybody stops here.
    return last.stop == 0 && last.save == 0;
  };
  std::optional<Made> execution;  // what is not reported yet
  const auto end_step = [&](Made& made) {
    numbers.add_to(made.mine, made.work.step);
    if (execution) {
      execution->add(made);
    } else {
      execution = made;
    }
    if (execution->steps < options_.steps_per_execution) return true;
    return report(*std::exchange(execution, std::nullopt));
  };
  std::optional<Made> queued;  // where the host is a step ahead
  for (bool go_on = true; go_on;) {
    const std::optional<Work> work = queue.next();
    if (!work) break;
    const auto whole = recording.step(work->step);
    std::optional<Made> made(Made{.work = *work, .whole = work->whole});
    made->mine = step(r, *work, pipeline, hooks, recording, numbers);
    made->rate = r.state.rate;
    if (numbers.ahead()) std::swap(made, queued);
    if (made) go_on = end_step(*made);
    remember(*work);
  }
  if (queued) end_step(*queued);
  if (execution) report(*execution);
  const Totals last = [&] {
    const auto span = recording.span(Part::kSettle);
    return strategy_.settle(r);
  }();
  if (!pending) return;
  learn(last);
  const auto [seconds, waited, messages] = lap();  // what is left of the last step
  const double steps = double(pending->made.steps);
  pending->seconds += seconds / steps;
  pending->waited += waited / steps;
  pending->messages += messages / steps;
  announce(r, *pending, last);
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
    report.images_per_second = pending.images_per_second;
    report.waited = pending.waited;
    report.traffic = pending.traffic;
    report.loss_scale = totals.loss_scale;
    report.skipped_steps = std::int64_t(totals.skipped);
    progress_.images_per_second.push_back(pending.images_per_second);
    progress_.last = report;
  }
  if (options_.on_step) options_.on_step(report);
}

EvaluationLoop::EvaluationLoop(Strategy& strategy, const Dataset& data, int accumulate,
                               const Trainer::Outputs* outputs, const FitOptions* fit)
    : strategy_(strategy), data_(data), accumulate_(accumulate), outputs_(outputs), fit_(fit) {}

// When the replicas ask each other next, which waits for all: in so many batches, and how long the
// last ones took.
struct EvaluationLoop::Vote {
  std::int64_t batches = 1, left = 0;
  Clock::time_point since = Clock::now();
};

// All see the same numbers, so all stop before the same batch, and vote again before the same one.
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
  double sums[4] = {};  // loss, correct, examples, among the first five
  const bool two_classes = data_.classes() == 2 && r.graph.correct() &&
                           r.graph.target().columns() == 1 && r.graph.output().columns() == 2;
  Vote vote;
  while (const std::optional<Work> work = queue.next()) {
    if (interrupted(r, vote)) return;
    for (int part = 0; part < accumulate_; ++part) {
      stage(r, pipeline.take(), work->step, work->whole, 0);
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

// The chief sorts all scores, and tells the others.
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
