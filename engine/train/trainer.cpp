// SPDX-License-Identifier: MIT
// Fitting: segments of steps between the points at which all replicas stop to save, to evaluate or
// to begin an epoch. A replica's loop is in training_loop.cpp.
#include "engine/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <exception>

#include "engine/base/quantity.h"
#include "engine/checkpoint/checkpoint_size.h"
#include "engine/train/run_end.h"
#include "engine/train/training_loop.h"
#include "engine/train/work_queue.h"

namespace lockstep::engine {
namespace {

constexpr std::int64_t kEarlySteps = 20;  // before their times are reported

bool by_epochs(const FitOptions& options) {
  return options.every == 0 && options.every_seconds == 0;
}

// Returns the steps of the whole run: those done, plus what the epochs have left from the data
// position, in batches of this run. Earlier steps may have had other batches. The result is smaller
// than the steps done if more epochs were done than are requested.
std::int64_t steps_of(const FitOptions& options, std::uint64_t examples, const Progress& done) {
  if (options.steps > 0) return options.steps;
  const auto [epoch, example] = done.position;
  const bool within = example > 0;  // inside an epoch
  const std::int64_t rest = within ? batches_of_epoch(examples - example, options.global_batch) : 0;
  const std::int64_t epochs = options.epochs - epoch - (within ? 1 : 0);
  return std::max<std::int64_t>(
      0, done.step + rest + epochs * batches_of_epoch(examples, options.global_batch));
}

// Returns what a restart would do, for the end of an error's text.
std::string how_it_goes_on(Checkpoints& checkpoints, std::string_view what) {
  try {
    const std::vector<std::int64_t> steps = checkpoints.steps();
    if (steps.empty()) return fmt::format("; nothing was saved yet, so {} begins anew", what);
    return fmt::format("; {} continues from step {}", what, steps.back());
  } catch (const Error&) {
    return "";  // files are gone too; the first error suffices
  }
}

}  // namespace

// Holds the state of one call of fit, since its last restore.
struct Trainer::Fit {
  const Dataset& data;
  const FitOptions& options;
  std::int64_t steps = 0;  // total steps of the run
  Progress progress;
  std::int64_t saved = -1;  // step of the last checkpoint
  std::optional<Checkpoints> checkpoints;
  History history;
  bool measured = false;             // set once, early in the run
  std::optional<RunState> restored;  // state of the checkpoint in use
};

Trainer::Trainer(Strategy& strategy, GraphSpec graph, optim::Optimizer optimizer,
                 TrainerOptions options)
    : strategy_(strategy),
      graph_(std::move(graph)),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)),
      own_storage_(options_.storage == nullptr ? posix_storage() : nullptr),
      storage_(options_.storage == nullptr ? own_storage_.get() : options_.storage),
      seed_(options_.seed) {
  // All processes would say the same; the chief says it.
  if (!strategy.membership().chief) options_.log = Log("", Log::Level::kError);
}

Trainer::~Trainer() = default;

void Trainer::open(std::size_t batch, int accumulate, const std::string& plan) {
  batch_ = 0;  // until `open` succeeds
  trained_ = false;
  broken_ = true;  // until the weights are complete
  strategy_.set_holder(nullptr);
  OpenOptions options;
  options.global_batch = batch;
  options.accumulate = accumulate;
  options.seed = seed_;
  options.run = run_;
  options.plan = plan;
  options.bytes_of_example = loop_bytes_.of_example;
  options.bytes_of_replica = loop_bytes_.of_replica;
  options.fallback = options_.fallback;
  strategy_.open(graph_, optimizer_.rule, options);
  tell_fallbacks();
  batch_ = batch;
  accumulate_ = accumulate;
  strategy_.set_holder(this);
}

void Trainer::require_weights() const {
  require(batch_ == 0 || strategy_.holder() == this,
          "model {}: another trainer has opened the strategy since, so this trainer's weights are "
          "gone: make a strategy for each trainer, or continue from checkpoints",
          graph_.name());
}

void Trainer::require_possible_now(std::string_view call) const {
  const bool reads = call == "evaluate" || call == "predict" || call == "weights";
  if (!fitting_)
    return require(!reads || !broken_,
                   "model {}: an error ended the call before, which may have damaged the weights: "
                   "call fit or restore before {}",
                   graph_.name(), call);
  const Membership membership = strategy_.membership();
  require(reads && !stepping_ && membership.local == membership.size,
          "{} was called from a callback, while {}: FitOptions::test evaluates after epochs; make "
          "other calls after fit",
          call,
          stepping_ ? "replicas compute"
          : reads   ? "other processes wait for the next step"
                    : "a run is under way");
}

void Trainer::tell_fallbacks() {
  const std::vector<std::string> names = strategy_.fallbacks();
  if (names.empty() || !strategy_.membership().chief || std::exchange(told_fallbacks_, true))
    return;
  options_.log.warning(
      "these layers run on the host, since they have no kernels for the replicas' device: {}",
      fmt::join(names, ", "));
}

void Trainer::check(const Dataset& data) const {
  require(data.size() > 0, "{} is empty", data.describe());
  require(data.input_shape().elements() == graph_.input_shape().elements(),
          "model {} takes inputs of {}, and {} gives {}", graph_.name(),
          to_string(graph_.input_shape()), data.describe(), to_string(data.input_shape()));
  require(data.target_columns() == graph_.target_columns(),
          "model {} wants {} target numbers an example, and {} gives {}", graph_.name(),
          graph_.target_columns(), data.describe(), data.target_columns());
  require(
      data.classes() <= graph_.output_shape().elements(),
      "model {} has {}, and {} has {}: give the last layer as many outputs as there are classes",
      graph_.name(), count_text(graph_.output_shape().elements(), "output"), data.describe(),
      count_text(data.classes(), "class", "classes"));
}

History Trainer::fit(const Dataset& data, const FitOptions& options) {
  require_possible_now("fit");
  fitting_ = true;
  const std::unique_ptr<Trainer, void (*)(Trainer*)> end(
      this, [](Trainer* trainer) { trainer->fitting_ = trainer->stepping_ = false; });
  require(options.global_batch >= 1, "the batch must hold at least one example");
  require(options.epochs >= 0 && options.steps >= 0, "epochs and steps cannot be negative");
  require(options.accumulate >= 1, "accumulate must be at least 1");
  require(options.steps_per_execution >= 1, "steps_per_execution must be at least 1");
  require(options.steps_ahead == 0 || options.steps_ahead == 1, "steps_ahead is 0 or 1, not {}",
          options.steps_ahead);
  require(std::min(double(options.every), options.every_seconds) >= 0,
          "checkpoints: every {} and every_seconds {} cannot be negative", options.every,
          options.every_seconds);
  require(options.keep >= 1, "checkpoints: keep must be at least 1, not {}", options.keep);
  check(data);
  if (options.test != nullptr) check(*options.test);
  loop_bytes_ = loop_bytes(data);
  run_ = fmt::format(
      "{}\n{}\ndata: {}, fingerprint {:016x}\nshuffle: {}\ncheckpoints: {}\nevery: {}{}\n"
      "test data: {}\neval: {}\nsteps per execution: {}",
      optimizer_.describe(),
      options.steps > 0 ? fmt::format("steps: {}", options.steps)
                        : fmt::format("epochs: {}", options.epochs),
      data.describe(), data.fingerprint(), options.shuffle,
      options.checkpoints.empty() ? "none" : options.checkpoints, options.every,
      options.every_seconds > 0 ? fmt::format(" or {} s", options.every_seconds) : "",
      options.test == nullptr ? "none" : options.test->describe(), options.evaluate_every,
      options.steps_per_execution);
  run_ += options.profile == nullptr ? "\nprofile: none"
                                     : fmt::format("\nprofile: {} steps", options.profile->steps());
  if (strategy_.follows()) return follow(data, options);
  strategy_.lead();
  std::optional<FolderClaim> claim;
  const auto take = [&] {
    if (options.checkpoints.empty() || !strategy_.membership().chief) return;
    claim.emplace(*storage_, options.checkpoints, options_.log);
  };
  strategy_.run_collectively(take, "the start of fit");
  int restores = 0;
  for (;;) {
    stepping_ = false;
    Fit fit{data, options, 0, {}, -1, {}, {}, false, {}};
    fit.progress.clocks.resize(std::size_t(strategy_.membership().local));
    fit.progress.saved_at = Clock::now();
    try {
      begin(fit, restores > 0);
      broken_ = true;  // unless the run ends in order
      if (fit.checkpoints && fit.progress.step < fit.steps) prepare(fit, claim);
      on_chief(options.on_open, fit.progress.step, fit.steps);
      if (fit.restored) tell(fit, *fit.restored);
      fit.history.first_step = fit.progress.step;
      fit.history.restores = restores;
      History history = run(fit);
      history.fallbacks = int(strategy_.fallbacks().size());
      broken_ = false;
      strategy_.released();
      return history;
    } catch (const Error& error) {
      const bool again = error.code() == Code::kUnavailable && restores < options.retries;
      const bool lost = error.code() == Code::kPeerLost || error.code() == Code::kTimeout;
      if (!again) strategy_.gave_up(error);
      if (lost) {
        throw with_remedy(strategy_, error,
                          fit.checkpoints ? how_it_goes_on(*fit.checkpoints, "the same command")
                                          : "; nothing was saved, since there is no folder for it");
      }
      if (!again) throw;
      ++restores;
      options_.log.warning(
          "{}{} ({} of {} times)", error.what(),
          fit.checkpoints ? how_it_goes_on(*fit.checkpoints, "training") : "; training begins anew",
          restores, options.retries);
    } catch (const std::exception& error) {
      strategy_.gave_up(as_error(error));
      throw;
    }
  }
}

// Runs a callback of the program, if there is one and this process is the chief. If it throws, the
// replicas throw the same inside of `run`, so that other processes hear the reason.
template <class Callback, class... Arguments>
void Trainer::on_chief(const Callback& callback, const Arguments&... arguments) {
  const Membership membership = strategy_.membership();
  if (!callback || !membership.chief) return;
  try {
    callback(arguments...);
  } catch (...) {
    broken_ = membership.local < membership.size;  // alone, the strategy is as it was
    if (broken_)
      strategy_.run(
          [thrown = std::current_exception()](Replica&) { std::rethrow_exception(thrown); });
    throw;
  }
}

// Opens the strategy, and sets where the run begins and how many steps it has.
void Trainer::begin(Fit& fit, bool reopen) {
  const FitOptions& options = fit.options;
  if (!options.checkpoints.empty()) {
    fit.checkpoints.emplace(*storage_, options.checkpoints, options.keep, options_.log);
  }
  std::optional<RunState> state;
  const auto look = [&] {
    if (!fit.checkpoints) return;
    fit.checkpoints->use_newest(
        [&](std::int64_t step) { state = find(*fit.checkpoints, step, &fit.data); });
  };
  strategy_.run_collectively(look, "the newest checkpoint");
  if (state) {
    fit.progress.step = fit.saved = state->step;
    fit.progress.position = state->position;
  }
  fit.steps = steps_of(options, fit.data.size(), fit.progress);
  if (!fit.checkpoints)
    return open_without_checkpoints(options.global_batch, options.accumulate, reopen);
  std::vector<std::string> fresh;
  if (state) fresh = fresh_slots(*fit.checkpoints, *state);
  if (state && state->step < fit.steps) {
    std::vector<std::string> names;
    for (const std::string& slot : fresh) names.push_back(slot.substr(0, slot.size() - 1));
    if (!names.empty())
      options_.log.warning(
          "{} of the optimizer start{} at zero: the checkpoint has none (written with {})",
          fmt::join(names, " and "), names.size() == 1 ? "s" : "", state->optimizer);
  }
  if (!state && (trained_ || !restored_.empty())) {
    open_without_checkpoints(options.global_batch, options.accumulate, reopen);
    return require_same_step(-1);
  }
  open_with(*fit.checkpoints, state, options.global_batch, options.accumulate, fresh);
  broken_ = false;
  if (!state) return;
  trained_ = true;
  restored_.clear();
  fit.restored = std::move(state);
}

// Tells where a run continues.
void Trainer::tell(const Fit& fit, const RunState& state) const {
  const Log& log = options_.log;
  if (state.step > fit.steps && fit.options.steps > 0) {
    log.info("nothing left to train: step {} is beyond the {} asked for", state.step, fit.steps);
    return;
  }
  // With another batch than before, the steps of the epochs say nothing.
  if (state.step > fit.steps) {
    log.info("nothing left to train: the checkpoint of step {} has finished {}, and {} asked for",
             state.step, count_text(state.position.epoch, "epoch"),
             fit.options.epochs == 1 ? "1 was" : fmt::format("{} were", fit.options.epochs));
    return;
  }
  if (state.step == fit.steps) {
    log.info("nothing left to train: the checkpoint is at step {} of {}", state.step, fit.steps);
    return;
  }
  std::vector<std::string> changes;
  if (state.global_batch != fit.options.global_batch)
    changes.push_back(
        fmt::format("batch {} instead of {}", fit.options.global_batch, state.global_batch));
  if (state.optimizer != optimizer_.describe())
    changes.push_back(fmt::format("{} instead of {}", optimizer_.describe(), state.optimizer));
  const bool training = !changes.empty();  // not only its length
  if (state.steps != fit.steps)
    changes.push_back(fmt::format("{} steps instead of {}{}", fit.steps, state.steps,
                                  rate_change(optimizer_, state, fit.steps)));
  const std::string text =
      fmt::format("training continues after step {} of {}, from {}/{}{}{}", state.step, fit.steps,
                  fit.options.checkpoints, checkpoint_name(state.step),
                  changes.empty() ? "" : ", with ", fmt::join(changes, "; "));
  training ? log.warning("{}", text) : log.info("{}", text);
}

// Checks before the first step that the folder can be written and has room for the checkpoints.
void Trainer::prepare(Fit& fit, const std::optional<FolderClaim>& claim) {
  const FitOptions& options = fit.options;
  const std::size_t left = std::size_t(fit.steps - fit.progress.step);
  std::size_t between = options.every > 0 ? std::size_t(options.every) : 1;
  if (by_epochs(options)) between = batches_of_epoch(fit.data.size(), options.global_batch);
  const std::int64_t saves = batches_of_epoch(left, between);
  strategy_.run([&](Replica& replica) {
    if (replica.rank == 0) {
      claim->require_held();
      fit.checkpoints->prepare(checkpoint_bytes(graph_, optimizer_.rule, replica.graph.dtype()),
                               saves);
    }
    strategy_.gather(replica, {}, "trying the folder of checkpoints");
  });
}

History Trainer::run(Fit& fit) {
  const FitOptions& options = fit.options;
  if (options.profile != nullptr) options.profile->choose(fit.progress.step, fit.steps);
  std::int64_t evaluated = -1;
  bool resumed = fit.progress.position.example > 0;  // within an epoch
  while (fit.progress.step < fit.steps && !fit.progress.stopped) {
    const std::int64_t step = fit.progress.step;
    const std::uint64_t left = fit.data.size() - fit.progress.position.example;
    std::int64_t until = std::min(fit.steps, step + batches_of_epoch(left, options.global_batch));
    if (options.every > 0) until = std::min(until, (step / options.every + 1) * options.every);
    train(fit, until);
    if (!fit.measured && fit.progress.step - fit.history.first_step >= kEarlySteps) measure(fit);
    const bool epoch_done = fit.progress.position.example == 0;
    const bool all_done = fit.progress.step == fit.steps;
    const bool ended_early = fit.progress.step < until;  // a checkpoint by time is due
    const bool at_step = options.every > 0 && fit.progress.step % options.every == 0;
    const bool due = ended_early || at_step || (by_epochs(options) && epoch_done);
    if (fit.checkpoints && (due || all_done || fit.progress.stopped)) save(fit);
    if (epoch_done) {
      const EpochReport report = fit.progress.epoch.take(fit.progress.position.epoch, resumed);
      on_chief(options.on_epoch, report);
      resumed = false;
    }
    if (options.test != nullptr && epoch_done && !all_done && !fit.progress.stopped &&
        options.evaluate_every > 0 && fit.progress.position.epoch % options.evaluate_every == 0) {
      evaluated = fit.progress.step;
      test(fit);
    }
  }
  if (options.test != nullptr && !fit.progress.stopped && evaluated != fit.progress.step) test(fit);
  if (fit.progress.step > fit.history.first_step) measure(fit);
  fit.history.steps = fit.progress.step;
  fit.history.seconds = fit.progress.seconds;
  if (fit.progress.counted_steps > 0) fit.history.traffic = fit.progress.traffic;
  fit.history.traffic_steps = fit.progress.counted_steps;
  if (fit.progress.last.examples > 0) fit.history.loss = fit.progress.last.loss;
  fit.history.loss_scale = fit.progress.last.loss_scale;
  fit.history.skipped_steps = fit.progress.last.skipped_steps;
  std::vector<double>& rates = fit.progress.examples_per_second;
  if (rates.size() > 10) rates.erase(rates.begin(), rates.begin() + 10);
  if (!rates.empty()) {
    const auto middle = rates.begin() + std::ptrdiff_t(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    fit.history.examples_per_second = *middle;
  }
  fit.history.interrupted = fit.progress.stopped;
  if (fit.progress.stopped) find_interrupt(strategy_, options.interrupt, fit.history);
  return fit.history;
}

// Runs an evaluation. If that is interrupted, saves the step, which may lie between checkpoints.
void Trainer::test(Fit& fit) {
  const FitOptions& options = fit.options;
  const std::optional<Evaluation> found = forward_all(*options.test, 0, nullptr, &options);
  if (!found) {
    fit.progress.stopped = SIGTERM;
    fit.history.test.reset();  // result of an earlier epoch, if any
    if (fit.checkpoints) save(fit);
    return;
  }
  fit.history.test = found;
  fit.history.test_step = fit.progress.step;
  on_chief(options.on_evaluation, *found, fit.progress.step, fit.progress.position.epoch);
}

void Trainer::train(Fit& fit, std::int64_t until) {
  WorkSpec work;
  work.examples = fit.data.size();
  work.global_batch = fit.options.global_batch;
  work.first_step = fit.progress.step;
  work.steps = until - fit.progress.step;
  work.position = fit.progress.position;
  work.run_steps = fit.steps;
  work.seed = seed_;
  strategy_.assign(work);
  trained_ = true;
  fit.progress.examples_per_second.reserve(std::size_t(until - fit.history.first_step));
  const auto begin = Clock::now();
  TrainingLoop loop(strategy_, fit.data, optimizer_, fit.options, fit.steps, accumulate_, seed_,
                    fit.progress);
  stepping_ = true;
  strategy_.run([&](Replica& replica) { loop.run(replica); });
  stepping_ = false;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  fit.progress.seconds += seconds;
  const std::optional<Standing> standing = strategy_.standing();
  if (!standing) return;
  const std::int64_t done = standing->step - fit.history.first_step;
  fit.progress.step = standing->step;
  fit.progress.position = standing->position;
  fit.progress.examples_per_second.assign(
      1, double(done) * double(work.global_batch) / fit.progress.seconds);
}

// Gathers all ranks' step times for the history. Warns once, at the first synchronization after
// kEarlySteps, if the job mostly communicates. Collective.
void Trainer::measure(Fit& fit) {
  const int first = strategy_.membership().rank;
  strategy_.run([&](Replica& replica) {
    const auto mine = fit.progress.clocks[std::size_t(replica.rank - first)].times().numbers();
    const std::vector<double> all = strategy_.gather(replica, mine, "times of the steps");
    if (replica.rank == first) fit.history.times = step_times(all);
  });
  const std::string warning = fit.history.times->warning();
  if (strategy_.membership().chief && !fit.measured && !warning.empty())
    options_.log.warning("{}", warning);
  fit.measured = true;
}

// Every rank writes its shard in parallel between two barriers; the chief commits, and then all
// ranks learn of it. The barrier's deadline names a missing rank.
void Trainer::save(Fit& fit) {
  const std::int64_t step = fit.progress.step;
  if (fit.saved == step) return;
  RunState state;
  state.step = step;
  state.steps = fit.steps;
  state.position = fit.progress.position;
  state.seed = seed_;
  state.global_batch = fit.options.global_batch;
  state.dataset = fit.data.describe();
  state.dataset_fingerprint = fit.data.fingerprint();
  state.graph = graph_.describe();
  state.model = options_.model;
  state.optimizer = optimizer_.describe();
  state.strategy = strategy_.name();
  state.replicas = strategy_.membership().size;
  state.plan = strategy_.plan();
  state.notes = fit.options.notes;
  const std::string what = fmt::format("saving step {}: all ranks must save together", step);
  const auto write = [&](Replica& replica) {
    const ProfilerRange whole(strategy_.profiler(), "checkpoint");
    if (replica.rank == 0) fit.checkpoints->begin(step);
    strategy_.gather(replica, {}, what);
    strategy_.average_statistics(replica, what);
    const std::vector<Shard> shards = strategy_.save(replica, *fit.checkpoints, step, what);
    if (replica.rank == 0) fit.checkpoints->commit(state, shards);
    strategy_.gather(replica, {}, what);
  };
  try {
    strategy_.run(write);
  } catch (const Error& error) {
    if (strategy_.membership().chief) fit.checkpoints->abandon(step);
    if (error.code() != Code::kIo) throw;
    fail(Code::kIo, "step {} could not be saved, older checkpoints are as they were: {}", step,
         error.what());
  }
  fit.saved = step;
  fit.progress.saved_at = Clock::now();
  on_chief(fit.options.on_checkpoint, step);
}

}  // namespace lockstep::engine
