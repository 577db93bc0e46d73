// SPDX-License-Identifier: MIT
// lockstep train: flags to model, data, strategy and trainer; nothing else.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/optim/optimizer.h"
#include "engine/train/event_log.h"
#include "engine/train/trainer.h"
#include "models/registry.h"
#include "strategies/session/factories.h"
#include "tools/command.h"
#include "tools/data_choice.h"
#include "tools/exit_codes.h"
#include "tools/json_config.h"
#include "tools/progress.h"
#include "tools/signals.h"

namespace lockstep::tools {
namespace {

using engine::Log;

struct Flags {
  std::string model = "mnist_cnn", data, strategy = "mirrored";
  int replicas = 1;
  std::size_t batch = 64;
  std::int64_t epochs = 6, steps = 0;
  int accumulate = 1;
  std::string optimizer = "sgd", schedule = "cosine";
  double rate = 0;  // 0: the optimizer's own
  double momentum = 0.9, weight_decay = 0, clip = 0;
  bool nesterov = false;
  std::uint64_t seed = 1, examples = 8000;
  int threads = 0;
  std::string device = "cpu", dtype, algorithm = "auto", update = "auto";
  double bucket_mib = 0, deadline_seconds = 0;
  std::string checkpoints, log;
  std::int64_t every = 0, evaluate_every = 1;
  int keep = 3, retries = 0;
  bool json = false;
};

void declare(CLI::App& app, Flags& f) {
  app.add_option("--model", f.model, "one of: " + models::list())->capture_default_str();
  app.add_option("--data", f.data,
                 "folder of IDX files (MNIST and its family), or 'random' for one batch of random "
                 "images kept in memory; without it, digits that the program draws");
  app.add_option("--strategy", f.strategy, "mirrored or collective_all_reduce")
      ->capture_default_str();
  app.add_option("--replicas", f.replicas, "replicas of this process")->capture_default_str();
  app.add_option("--batch", f.batch, "examples of a step over all replicas")->capture_default_str();
  app.add_option("--epochs", f.epochs, "passes over the training data")->capture_default_str();
  app.add_option("--steps", f.steps, "steps in all, instead of epochs");
  app.add_option("--accumulate", f.accumulate, "micro-batches of each replica's share")
      ->capture_default_str();
  app.add_option("--optimizer", f.optimizer, "sgd, adam or adamw")->capture_default_str();
  app.add_option("--rate", f.rate, "learning rate (sgd 0.02, adam and adamw 0.001)");
  app.add_option("--momentum", f.momentum, "of sgd")->capture_default_str();
  app.add_flag("--nesterov", f.nesterov, "Nesterov's momentum for sgd");
  app.add_option("--weight-decay", f.weight_decay, "weight decay")->capture_default_str();
  app.add_option("--clip", f.clip, "largest global norm of the gradient; 0: no clipping")
      ->capture_default_str();
  app.add_option("--schedule", f.schedule, "constant or cosine, e.g. cosine:warmup=100,last=0.1")
      ->capture_default_str();
  app.add_option("--seed", f.seed, "of start values, order and dropout")->capture_default_str();
  app.add_option("--examples", f.examples, "generated digits to train on")->capture_default_str();
  app.add_option("--threads", f.threads, "library threads of a replica; 0: cores shared equally")
      ->capture_default_str();
  app.add_option("--device", f.device, "cpu or reference")->capture_default_str();
  app.add_option("--dtype", f.dtype, "float32 or float64; without it, what the device prefers");
  app.add_option("--algorithm", f.algorithm, "of the all-reduce: auto, direct, ring")
      ->capture_default_str();
  app.add_option("--update", f.update, "fused into the all-reduce or apart: auto, fused, apart")
      ->capture_default_str();
  app.add_option("--bucket", f.bucket_mib, "MiB of gradients that are summed together; 0: chosen")
      ->capture_default_str();
  app.add_option("--deadline", f.deadline_seconds,
                 "seconds that a replica waits for another; without it 60 or 20 median steps");
  app.add_option("--checkpoints", f.checkpoints,
                 "folder: continues from what it holds, and saves there");
  app.add_option("--every", f.every, "steps between checkpoints; 0: after each epoch")
      ->capture_default_str();
  app.add_option("--keep", f.keep, "checkpoints that stay")->capture_default_str();
  app.add_option("--retries", f.retries, "restores after errors that may pass")
      ->capture_default_str();
  app.add_option("--eval", f.evaluate_every,
                 "epochs between evaluations of the test data; 0: only at the end")
      ->capture_default_str();
  app.add_option("--log", f.log, "file for JSON lines: a line a step, evaluation, checkpoint");
  app.add_flag("--json", f.json, "print one JSON object as the last line of standard output");
  app.set_config("--config", "", "JSON file of flags; flags on the command line win");
  app.config_formatter(std::make_shared<JsonConfig>());
  app.allow_config_extras(CLI::config_extras_mode::error);
}

engine::optim::Optimizer optimizer(const Flags& f) {
  namespace optim = engine::optim;
  engine::require(std::isfinite(f.rate) && f.rate >= 0, "--rate must be positive, not {}", f.rate);
  const optim::Schedule schedule = optim::schedule(f.schedule);
  if (f.optimizer == "sgd") {
    return optim::sgd({.rate = f.rate > 0 ? f.rate : 0.02,
                       .momentum = f.momentum,
                       .nesterov = f.nesterov,
                       .weight_decay = f.weight_decay,
                       .clip_norm = f.clip,
                       .schedule = schedule});
  }
  optim::AdamOptions options;
  if (f.rate > 0) options.rate = f.rate;
  options.weight_decay = f.weight_decay;
  options.clip_norm = f.clip;
  options.schedule = schedule;
  if (f.optimizer == "adam") return optim::adam(options);
  if (f.optimizer == "adamw") return optim::adamw(options);
  engine::fail(engine::Code::kInvalid, "unknown optimizer '{}'; known: sgd, adam, adamw",
               f.optimizer);
}

strategies::StrategyOptions strategy_options(const Flags& f) {
  engine::require(f.bucket_mib >= 0 && f.bucket_mib <= 65536,
                  "--bucket must be from 0 to 65536 MiB");
  engine::require(f.deadline_seconds >= 0 && f.deadline_seconds <= 1e6,
                  "--deadline must be above 0 seconds");
  strategies::StrategyOptions options;
  options.replicas = f.replicas;
  options.device = f.device;
  options.threads = f.threads;
  if (!f.dtype.empty()) options.dtype = engine::dtype_of(f.dtype);
  options.algorithm = f.algorithm;
  options.update = f.update;
  options.bucket_bytes = std::size_t(f.bucket_mib * 1048576);
  if (f.deadline_seconds > 0) {
    options.deadline = std::chrono::milliseconds(std::int64_t(f.deadline_seconds * 1000));
  }
  return options;
}

nlohmann::json result(const Flags& f, const engine::Strategy& strategy,
                      const engine::History& history) {
  nlohmann::json object{{"model", f.model},
                        {"strategy", strategy.name()},
                        {"replicas", strategy.membership().size},
                        {"batch", f.batch},
                        {"steps", history.steps},
                        {"seconds", history.seconds},
                        {"images_per_second", history.images_per_second},
                        {"loss", history.loss},
                        {"test_accuracy", nullptr},
                        {"algorithm", strategy.algorithm()},
                        {"reason", strategy.reason()}};
  if (history.test) {
    object["test_accuracy"] = history.test->accuracy;
    object["test_loss"] = history.test->loss;
  }
  if (history.first_step > 0) object["first_step"] = history.first_step;
  if (history.interrupted != 0) object["interrupted"] = history.interrupted;
  return object;
}

int train(const Flags& f, const Program& program) {
  const std::atomic<int>& interrupt = watch_signals();
  const collectives::mpi::Launch launch = collectives::mpi::launch();
  const bool first = !launch.present || launch.rank == 0;
  Log log(launch.size > 1 ? fmt::format("process {}", launch.rank) : "",
          first ? Log::Level::kInfo : Log::Level::kWarning);
  // What can be wrong with the flags is said before other processes are waited for.
  engine::GraphSpec graph = models::build(f.model);
  const engine::optim::Optimizer rule = optimizer(f);
  const strategies::StrategyOptions options = strategy_options(f);
  engine::require(f.batch >= 1 && f.batch <= 1'000'000'000, "--batch must be from 1 to 10^9");
  DataChoice choice{f.data, f.batch, f.examples, f.seed};
  const engine::data::Sets sets = choose_data(choice, graph);

  strategies::Session session(
      program.argc, program.argv,
      {.deadline = options.deadline.value_or(std::chrono::seconds(60)), .log = log});
  const auto strategy = strategies::make_strategy(f.strategy, session, options);
  const bool chief = strategy->membership().chief;
  Progress progress(chief, std::int64_t(sets.train->size()));
  std::optional<engine::EventLog> events;
  if (chief && !f.log.empty()) events.emplace(f.log, log);
  engine::TrainerOptions trainer_options;
  trainer_options.seed = f.seed;
  trainer_options.model = f.model;
  trainer_options.log = log;
  engine::Trainer trainer(*strategy, std::move(graph), rule, trainer_options);

  engine::FitOptions fit;
  fit.epochs = f.epochs;
  fit.steps = f.steps;
  fit.global_batch = f.batch;
  fit.accumulate = f.accumulate;
  fit.checkpoints = f.checkpoints;
  fit.every = f.every;
  fit.keep = f.keep;
  fit.retries = f.retries;
  fit.test = sets.test.get();
  fit.evaluate_every = f.evaluate_every;
  fit.interrupt = &interrupt;
  bool explained = false;
  std::int64_t last_step = 0;
  fit.on_step = [&](const engine::StepReport& report) {
    if (!explained) progress.say(strategy->explain());
    explained = true;
    last_step = report.step;
    progress.step(report);
    if (events) {
      events->write("step", {{"step", report.step},
                             {"loss", report.loss},
                             {"accuracy", report.accuracy},
                             {"rate", report.rate},
                             {"images_per_second", report.images_per_second}});
    }
  };
  fit.on_epoch = [&](std::int64_t epoch, const engine::StepReport& last) {
    progress.epoch(epoch, last);
  };
  fit.on_evaluation = [&](const engine::Evaluation& test, std::int64_t epoch) {
    progress.say(fmt::format("test after {} epochs: loss {:.4f}, accuracy {:.4f}", epoch, test.loss,
                             test.accuracy));
    if (events) {
      events->write("evaluation", {{"step", last_step},
                                   {"epoch", epoch},
                                   {"loss", test.loss},
                                   {"accuracy", test.accuracy}});
    }
  };
  fit.on_checkpoint = [&](std::int64_t step) {
    if (events) events->write("checkpoint", {{"step", step}});
  };
  progress.say(fmt::format("{} on {}", f.model, sets.train->describe()));
  const engine::History history = trainer.fit(*sets.train, fit);
  progress.close();
  if (chief && f.json) {
    fmt::print("{}\n", result(f, *strategy, history).dump());
    std::fflush(stdout);
  }
  if (history.interrupted == 0) return kDone;
  progress.say(
      f.checkpoints.empty()
          ? "stopped by a signal after step " + std::to_string(history.steps)
          : fmt::format("stopped by a signal; saved step {} in {}", history.steps, f.checkpoints));
  return exit_code_of_signal(history.interrupted);
}

}  // namespace

Command add_train(CLI::App& app) {
  auto flags = std::make_shared<Flags>();  // lives as long as the parser's callbacks
  declare(app, *flags);
  return [flags](const Program& program) { return train(*flags, program); };
}

}  // namespace lockstep::tools
