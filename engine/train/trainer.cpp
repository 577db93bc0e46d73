// SPDX-License-Identifier: MIT
// Fitting: segments of steps between the moments at which all replicas stop to save, to evaluate,
// to begin an epoch. The loop of a replica stands in replica_loop.cpp.
#include "engine/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "engine/train/replica_loop.h"

namespace lockstep::engine {
namespace {

constexpr std::size_t kEvaluationBatch = 100;

std::int64_t batches_of_epoch(std::uint64_t examples, std::size_t batch) {
  return std::int64_t((examples + batch - 1) / batch);
}

// The first line in which two descriptions differ, for a message.
std::string first_difference(const std::string& theirs, const std::string& ours) {
  std::istringstream a(theirs), b(ours);
  for (std::string x, y;;) {
    const bool more_a = bool(std::getline(a, x)), more_b = bool(std::getline(b, y));
    if (!more_a && !more_b) return "nothing";
    if (!more_a) x = "(nothing)";
    if (!more_b) y = "(nothing)";
    if (x != y) return fmt::format("'{}' there, '{}' here", x, y);
  }
}

}  // namespace

// One call of fit, from its last restore on.
struct Trainer::Fit {
  const Dataset& data;
  const FitOptions& options;
  std::int64_t steps = 0;  // of the whole run
  Progress progress;
  std::int64_t saved = -1;  // step of the last checkpoint
  std::optional<Checkpoints> checkpoints;
  History history;
};

Trainer::Trainer(Strategy& strategy, GraphSpec graph, optim::Optimizer optimizer,
                 TrainerOptions options)
    : strategy_(strategy),
      graph_(std::move(graph)),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)),
      own_storage_(options_.storage == nullptr ? posix_storage() : nullptr),
      storage_(options_.storage == nullptr ? own_storage_.get() : options_.storage),
      seed_(options_.seed) {}

Trainer::~Trainer() = default;

void Trainer::open(std::size_t batch, int accumulate, const std::string& plan) {
  batch_ = 0;  // until it has worked
  OpenOptions options;
  options.batch = batch;
  options.accumulate = accumulate;
  options.seed = seed_;
  options.run = run_;
  options.plan = plan;
  options.bytes_of_example = loop_bytes_.of_example;
  options.bytes_of_replica = loop_bytes_.of_replica;
  strategy_.open(graph_, optimizer_.rule, options);
  batch_ = batch;
  accumulate_ = accumulate;
}

void Trainer::check(const Dataset& data) const {
  require(data.size() > 0, "{} is empty", data.describe());
  require(data.input_shape().elements() == graph_.input_shape().elements(),
          "model {} takes inputs of {}, and {} gives {}", graph_.name(),
          to_string(graph_.input_shape()), data.describe(), to_string(data.input_shape()));
  require(data.target_columns() == graph_.target_columns(),
          "model {} wants {} target numbers an example, and {} gives {}", graph_.name(),
          graph_.target_columns(), data.describe(), data.target_columns());
  require(data.classes() <= graph_.output_shape().elements(),
          "model {} knows {} classes, and {} has {}", graph_.name(),
          graph_.output_shape().elements(), data.describe(), data.classes());
}

// Opens the strategy, with the plan of the newest whole checkpoint where there is one, and gives
// every replica its arrays. Every process reads for itself; that all found the same step is
// compared.
std::optional<RunState> Trainer::restore_newest(Checkpoints& checkpoints, std::size_t batch,
                                                int accumulate, const Dataset* data) {
  const std::optional<std::int64_t> step = checkpoints.newest_whole();
  std::optional<RunState> state;
  if (!step && !checkpoints.steps().empty()) {
    std::string reason;
    try {
      checkpoints.verify(checkpoints.steps().back());
    } catch (const Error& error) {
      reason = error.what();
    }
    fail(Code::kCorrupt,
         "no whole checkpoint is there ({}): mend it, or give another folder to start afresh",
         reason);
  }
  if (step) state = checkpoints.read_state(*step);
  std::vector<std::string> fresh;  // slots that the checkpoint's optimizer did not have
  if (state) {
    require(state->graph == graph_.describe(),
            "the checkpoint of step {} holds another model: {}: give another folder for "
            "checkpoints, or the model {}",
            *step, first_difference(state->graph, graph_.describe()),
            state->model.empty() ? "that wrote it" : state->model);
    require(data == nullptr || state->dataset_fingerprint == data->fingerprint(),
            "the checkpoint of step {} was trained on {}, and this is {}: give another folder for "
            "checkpoints, or the same data",
            *step, state->dataset, data == nullptr ? "" : data->describe());
    if (state->seed != seed_) {
      options_.log.warning("the checkpoint's seed {} is used, not {}", state->seed, seed_);
    }
    seed_ = state->seed;
    const std::vector<Checkpoints::ArrayInfo> arrays = checkpoints.arrays(*step);
    for (std::size_t slot = 0; slot < optimizer_.rule.slots(); ++slot) {
      const std::string prefix = std::string(optimizer_.rule.slot_name(slot)) + "/";
      const bool there = std::any_of(arrays.begin(), arrays.end(), [&](const auto& array) {
        return array.name.starts_with(prefix);
      });
      if (there) continue;
      options_.log.warning("the checkpoint, written with {}, has no {}: it starts at zero",
                           state->optimizer, optimizer_.rule.slot_name(slot));
      fresh.push_back(prefix);
    }
  }
  open(batch, accumulate, state ? state->plan : "");
  strategy_.run([&](Replica& replica) {
    if (step) checkpoints.restore(*step, strategy_.pieces_to_restore(replica), fresh);
    const double mine[] = {step ? double(*step) : -1.0};
    const std::vector<double> all = strategy_.gather(replica, mine, "restoring a checkpoint");
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      require(all[rank] == mine[0],
              "rank {} found checkpoint {}, and rank {} found {}: all hosts "
              "must share the folder",
              rank, all[rank], replica.rank, mine[0]);
    }
  });
  return state;
}

RunState Trainer::restore(const std::string& folder) {
  Checkpoints checkpoints(*storage_, folder, 1, options_.log);
  const std::optional<RunState> state =
      restore_newest(checkpoints, batch_ == 0 ? kEvaluationBatch : batch_, accumulate_, nullptr);
  require(state.has_value(), "there is no whole checkpoint in {}", folder);
  return *state;
}

History Trainer::fit(const Dataset& data, const FitOptions& options) {
  require(options.global_batch >= 1, "the batch must hold at least one example");
  require(options.epochs >= 0 && options.steps >= 0, "epochs and steps cannot be negative");
  require(options.accumulate >= 1, "accumulate must be at least 1");
  require(options.every >= 0 && options.keep >= 1, "checkpoints: every >= 0 and keep >= 1");
  check(data);
  if (options.test != nullptr) check(*options.test);
  loop_bytes_ = loop_bytes(data);
  const std::int64_t steps =
      options.steps > 0 ? options.steps
                        : options.epochs * batches_of_epoch(data.size(), options.global_batch);
  run_ = fmt::format(
      "{}\nsteps: {}\ndata: {}, fingerprint {:016x}\nshuffle: {}\n"
      "checkpoints: {}, every: {}\ntest data: {}, evaluated every: {}",
      optimizer_.describe(), steps, data.describe(), data.fingerprint(), options.shuffle,
      options.checkpoints.empty() ? "no" : "yes", options.every,
      options.test == nullptr ? "none" : options.test->describe(), options.evaluate_every);
  if (options.profile != nullptr) {
    run_ += fmt::format("\nprofile: {} steps", options.profile->steps());
  }
  int restores = 0;
  for (;;) {
    Fit fit{data, options, steps, {}, -1, {}, {}};
    try {
      if (!options.checkpoints.empty()) {
        fit.checkpoints.emplace(*storage_, options.checkpoints, options.keep, options_.log);
        const std::optional<RunState> state =
            restore_newest(*fit.checkpoints, options.global_batch, options.accumulate, &data);
        if (state) {
          fit.progress.step = fit.saved = state->step;
          fit.progress.position = state->position;
          options_.log.info("continues after step {} of {}", state->step, steps);
          if (state->steps != steps || state->batch != options.global_batch ||
              state->optimizer != optimizer_.describe()) {
            options_.log.info(
                "the checkpoint was on its way to step {} with batch {} and {}; now it "
                "is step {} with batch {} and {}",
                state->steps, state->batch, state->optimizer, steps, options.global_batch,
                optimizer_.describe());
          }
        }
      } else if (batch_ != options.global_batch || accumulate_ != options.accumulate || restores) {
        open(options.global_batch, options.accumulate, "");
      }
      if (fit.checkpoints && fit.progress.step < steps) prepare(*fit.checkpoints);
      if (options.on_open && strategy_.membership().chief) options.on_open();
      fit.history.first_step = fit.progress.step;
      fit.history.restores = restores;
      return run(fit);
    } catch (const Error& error) {
      const bool again = error.code() == Code::kUnavailable && restores < options.retries;
      if (!again) throw;
      ++restores;
      options_.log.warning("{}: restores and goes on ({} of {} times)", error.what(), restores,
                           options.retries);
    }
  }
}

// A folder that cannot be written is known before the first step, not after the last.
void Trainer::prepare(Checkpoints& checkpoints) {
  strategy_.run([&](Replica& replica) {
    if (replica.rank == 0) checkpoints.prepare();
    strategy_.gather(replica, {}, "trying the folder of checkpoints");
  });
}

History Trainer::run(Fit& fit) {
  const FitOptions& options = fit.options;
  const bool chief = strategy_.membership().chief;
  if (options.profile != nullptr) options.profile->choose(fit.progress.step, fit.steps);
  std::int64_t evaluated = -1;
  while (fit.progress.step < fit.steps && !fit.progress.stopped) {
    const std::int64_t step = fit.progress.step;
    const std::uint64_t left = fit.data.size() - fit.progress.position.example;
    std::int64_t until = std::min(fit.steps, step + batches_of_epoch(left, options.global_batch));
    if (options.every > 0) until = std::min(until, (step / options.every + 1) * options.every);
    train(fit, until);
    const bool epoch_done = fit.progress.position.example == 0;
    const bool all_done = fit.progress.step == fit.steps;
    const bool due = options.every > 0 ? fit.progress.step % options.every == 0 : epoch_done;
    if (fit.checkpoints && (due || all_done || fit.progress.stopped)) save(fit);
    if (epoch_done && chief && options.on_epoch) {
      options.on_epoch(fit.progress.position.epoch, fit.progress.last);
    }
    if (options.test != nullptr && epoch_done && !all_done && !fit.progress.stopped &&
        options.evaluate_every > 0 && fit.progress.position.epoch % options.evaluate_every == 0) {
      fit.history.test = evaluate(*options.test);
      evaluated = fit.progress.step;
      if (chief && options.on_evaluation) {
        options.on_evaluation(*fit.history.test, evaluated, fit.progress.position.epoch);
      }
    }
  }
  if (options.test != nullptr && !fit.progress.stopped && evaluated != fit.progress.step) {
    fit.history.test = evaluate(*options.test);
    if (chief && options.on_evaluation) {
      options.on_evaluation(*fit.history.test, fit.progress.step, fit.progress.position.epoch);
    }
  }
  fit.history.steps = fit.progress.step;
  fit.history.seconds = fit.progress.seconds;
  fit.history.loss = fit.progress.last.loss;
  std::vector<double>& rates = fit.progress.images_per_second;
  if (rates.size() > 10) rates.erase(rates.begin(), rates.begin() + 10);
  if (!rates.empty()) {
    const auto middle = rates.begin() + std::ptrdiff_t(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    fit.history.images_per_second = *middle;
  }
  if (fit.progress.stopped) {
    const int mine = options.interrupt != nullptr ? options.interrupt->load() : 0;
    fit.history.interrupted = mine != 0 ? mine : fit.progress.stopped;
  }
  return fit.history;
}

void Trainer::train(Fit& fit, std::int64_t until) {
  WorkSpec work;
  work.examples = fit.data.size();
  work.batch = fit.options.global_batch;
  work.first_step = fit.progress.step;
  work.steps = until - fit.progress.step;
  work.position = fit.progress.position;
  strategy_.deal(work);
  fit.progress.images_per_second.reserve(std::size_t(until - fit.history.first_step));
  const auto begin = Clock::now();
  TrainingLoop loop(strategy_, fit.data, optimizer_, fit.options, fit.steps, accumulate_, seed_,
                    fit.progress);
  strategy_.run([&](Replica& replica) { loop.run(replica); });
  fit.progress.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

// Side by side: every rank writes its shard between two meetings; the chief commits; all learn that
// it has. A rank that does not come is named by the meeting's deadline.
void Trainer::save(Fit& fit) {
  const std::int64_t step = fit.progress.step;
  if (fit.saved == step) return;
  RunState state;
  state.step = step;
  state.steps = fit.steps;
  state.position = fit.progress.position;
  state.seed = seed_;
  state.batch = fit.options.global_batch;
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
    if (replica.rank == 0) fit.checkpoints->begin(step);
    strategy_.gather(replica, {}, what);
    const Shard mine = fit.checkpoints->write_shard(step, replica.rank, state.replicas,
                                                    strategy_.pieces_to_save(replica));
    const double numbers[] = {double(mine.bytes), double(mine.crc)};
    const std::vector<double> all = strategy_.gather(replica, numbers, what);
    if (replica.rank == 0) {
      std::vector<Shard> shards;
      for (std::size_t i = 0; i < all.size(); i += 2) {
        shards.push_back({std::uint64_t(all[i]), std::uint32_t(all[i + 1])});
      }
      fit.checkpoints->commit(state, shards);
    }
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
  if (strategy_.membership().chief && fit.options.on_checkpoint) fit.options.on_checkpoint(step);
}

Evaluation Trainer::evaluate(const Dataset& data, std::size_t global_batch) {
  return forward_all(data, global_batch, nullptr);
}

Evaluation Trainer::predict(const Dataset& data, std::size_t global_batch, const Outputs& outputs) {
  return forward_all(data, global_batch, &outputs);
}

Evaluation Trainer::forward_all(const Dataset& data, std::size_t batch, const Outputs* outputs) {
  check(data);
  if (batch_ == 0) open(batch == 0 ? kEvaluationBatch : batch, 1, "");
  WorkSpec work;
  work.examples = data.size();
  work.batch = batch == 0 ? batch_ : std::min(batch, batch_);
  work.steps = batches_of_epoch(data.size(), work.batch);
  work.training = false;
  strategy_.deal(work);
  EvaluationLoop loop(strategy_, data, accumulate_, outputs);
  strategy_.run([&](Replica& replica) { loop.run(replica); });
  return loop.result();
}

}  // namespace lockstep::engine
