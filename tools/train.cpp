// SPDX-License-Identifier: MIT
// lockstep train: turns flags into model, data, strategy and trainer; nothing else.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <tuple>

#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/vendor_sum.h"
#include "collectives/cost/cost_cache.h"
#include "collectives/cost/size_rules.h"
#include "collectives/topology/machine.h"
#include "engine/base/brief.h"
#include "engine/base/quantity.h"
#include "engine/runtime/devices.h"
#include "engine/train/trainer.h"
#include "models/registry.h"
#include "strategies/session/factories.h"
#include "strategies/session/launched_task.h"
#include "strategies/session/parameter_server_job.h"
#include "strategies/session/server_task.h"
#include "tools/bounds.h"
#include "tools/chief_files.h"
#include "tools/command.h"
#include "tools/data_choice.h"
#include "tools/evaluator.h"
#include "tools/exit_codes.h"
#include "tools/leaving.h"
#include "tools/optimizer_choice.h"
#include "tools/progress.h"
#include "tools/records.h"
#include "tools/signals.h"
#include "tools/strategy_choice.h"
#include "tools/train_flags.h"
#include "tools/train_reports.h"

namespace lockstep::tools {
namespace {

using engine::Log;

constexpr std::int64_t kEpochs = 6;  // default, without --steps

// Warns if one worker computes all steps of a short run, since the result does not show that.
void warn_of_warm_up(const TrainFlags& f, std::uint64_t examples, std::size_t workers,
                     const engine::Log& log) {
  if (f.strategy != "parameter_server" || f.servers.updates.synchronous || workers == 1) return;
  const std::uint64_t an_epoch = (examples + f.data.global_batch - 1) / f.data.global_batch;
  const std::int64_t steps = f.training.steps > 0
                                 ? f.training.steps
                                 : f.training.epochs.value_or(kEpochs) * std::int64_t(an_epoch);
  if (steps > f.servers.updates.warm_up) return;
  log.warning(
      "all {} belong to the warm-up of one worker, so {} of {} workers have nothing to do; "
      "--warm-up 0 gives them work",
      engine::count_text(std::uint64_t(steps), "step"), workers - 1, workers);
}

// Checks that the flags fit together. train_flags.cpp checks each flag alone.
void check_together(const TrainFlags& f, int processes) {
  engine::require(f.strategy != "mirrored" || processes == 1,
                  "mirrored trains in one process, and {} were started: use --strategy "
                  "collective_all_reduce, or start one process",
                  processes);
  check_servers(f);
  // This checks a single algorithm for all sizes; with several, the strategy knows which buckets
  // they get.
  const auto rules = collectives::parse_size_rules(f.communication.algorithm);
  engine::require(f.update != "fused" || !collectives::is_vendor_sum(f.communication.algorithm),
                  "--update fused: {} cannot apply an update: use --update separate",
                  f.communication.algorithm);
  if (f.update == "fused" &&
      rules == std::vector{collectives::SizeRule{f.communication.algorithm}}) {
    engine::require(collectives::find_algorithm(f.communication.algorithm).updates,
                    "--update fused: {} cannot apply an update: use --update separate, or "
                    "--algorithm direct",
                    f.communication.algorithm);
    engine::require(!f.optimizer.clip || f.communication.algorithm == "direct",
                    "--update fused with --clip: an update fused into {} cannot know the norm "
                    "first: use separate, or --algorithm direct",
                    f.communication.algorithm);
  }
  check_optimizer(f);
  engine::require(f.training.steps == 0 || !f.training.epochs,
                  "--steps {} and --epochs {}: a run ends after one of them; leave the other out",
                  f.training.steps, f.training.epochs.value_or(0));
  engine::require(
      f.devices.graphs != "on" || (f.devices.steps_ahead > 0 && f.files.profile.empty()),
      "--graphs on: the host takes part in each step {}: leave one of them out",
      f.devices.steps_ahead == 0 ? "with --steps-ahead 0" : "that --profile records");
  engine::require(!f.files.profile_steps || !f.files.profile.empty(),
                  "--profile-steps {} without --profile records nothing: name a file for the trace",
                  f.files.profile_steps.value_or(0));
  engine::require(f.files.every == "0" || !f.files.checkpoints.empty(),
                  "--every {} without --checkpoints saves nothing: name a folder for them",
                  f.files.every);
  check_device(f);
}

// Returns the data sets, and checks the folder of checkpoints. Both depend on the files of this
// host.
engine::data::Sets data(const TrainFlags& f, const engine::GraphSpec& graph, int processes) {
  if (!f.files.checkpoints.empty()) {
    std::error_code error;
    const auto kind = std::filesystem::status(f.files.checkpoints, error).type();
    const bool below_a_file = error == std::errc::not_a_directory;
    if ((kind != std::filesystem::file_type::directory &&
         kind != std::filesystem::file_type::not_found) ||
        below_a_file) {
      engine::fail(engine::Code::kIo,
                   "--checkpoints: {} is not a folder; name one, or one that is "
                   "still to be made",
                   engine::brief(f.files.checkpoints));
    }
  }
  const double needed =
      double(f.data.global_batch) * double(graph.input_shape().elements()) * sizeof(float);
  const double there = double(collectives::available_memory());
  engine::require(needed <= there,
                  "--batch {} needs {:.1f} GiB for its inputs alone, and {:.1f} GiB are free",
                  f.data.global_batch, needed / 0x1p30, there / 0x1p30);
  engine::data::Sets sets = choose_data(f.data, graph);
  const std::size_t here =
      f.devices.each.empty() ? std::size_t(f.replicas.value_or(1)) : f.devices.each.size();
  const std::size_t replicas = here * std::size_t(std::max(processes, 1));
  engine::require(replicas <= sets.train->size(),
                  "{} replicas are more than all {} examples of the training data: use at most {}",
                  replicas, sets.train->size(), sets.train->size());
  engine::require(f.data.global_batch <= sets.train->size(),
                  "--batch {} is more than all {} examples of the training data",
                  f.data.global_batch, sets.train->size());
  return sets;
}

// Runs `body`, and adds to its errors which of the flags come from the file of flags.
template <class Body>
auto naming_the_file(const Configured& configured, Body&& body) {
  try {
    return body();
  } catch (const engine::Error& error) {
    throw error.with(with_file(configured, message(error))).about(engine::Option::kNone);
  }
}

// Returns this process's task and cluster with servers, if TF_CONFIG defines them. Several
// processes without a known launcher would train alone.
Cluster cluster_of(const TrainFlags& f, const Log& log) {
  const char* const text = strategies::tf_config_of_environment();
  if (text == nullptr || f.strategy != "parameter_server") strategies::require_known_launcher();
  if (text == nullptr) return std::nullopt;
  if (f.strategy == "mirrored") {
    log.warning(
        "TF_CONFIG is ignored, since the strategy is mirrored, which trains in this process alone; "
        "a task of a cluster with servers needs --strategy parameter_server");
    return std::nullopt;
  }
  if (f.strategy != "parameter_server") {
    strategies::parse_tf_config(text, strategies::ClusterUse::kAllReduce);
    return std::nullopt;
  }
  Cluster cluster = strategies::parse_tf_config(text, strategies::ClusterUse::kParameterServer);
  // Workers do not repeat the warnings of the chief and the servers.
  if (cluster->task.role != strategies::Role::kWorker)
    for (const std::string& warning : cluster->warnings) log.warning("{}", warning);
  engine::require(cluster->task.role != strategies::Role::kEvaluator,
                  "TF_CONFIG: an evaluator is one process, and {} were started",
                  strategies::launch().size);
  return cluster;
}

// Runs a server's task until the chief reports the end of the job. The chief polls it every second;
// without a chief it ends after a silence.
int serve_task(const TrainFlags& f, const strategies::ClusterConfig& cluster,
               const std::atomic<int>& interrupt, const Log& log) {
  strategies::ServerTaskOptions options;
  options.serve.address = address_of(cluster.spec, cluster.task);
  options.serve.tls = f.servers.tls;
  options.serve.insecure = f.servers.insecure;
  options.most_bytes = f.memory_limit_bytes();
  options.life = std::chrono::milliseconds(std::int64_t(f.deadline_seconds.value_or(60) * 1000));
  options.log = log;
  const auto task = strategies::server_task(options);
  const auto end = task->join(engine::Clock::time_point::max(), &interrupt);
  if (!end) return exit_code_of_signal(interrupt);
  if (end->failed) log.error("the chief ended the job: {}", end->why);
  return end->failed ? kTryAgain : kDone;
}

// Returns the flags with a strategy. Processes that were started together train together, and so do
// the tasks of a cluster.
TrainFlags with_strategy(TrainFlags f, int processes, const Log& log) {
  if (!f.strategy.empty()) return f;
  strategies::ClusterSpec cluster;
  if (const char* const text = strategies::tf_config_of_environment();
      text != nullptr && processes == 1)
    cluster = strategies::parse_tf_config(text, strategies::ClusterUse::kEither).spec;
  std::string why;
  if (processes > 1) {
    f.strategy = "collective_all_reduce";
    why =
        fmt::format("{} processes were started (by {})", processes, strategies::launch().launcher);
  } else if (!cluster.servers.empty()) {
    f.strategy = "parameter_server";
    why = "TF_CONFIG has " + engine::count_text(cluster.servers.size(), "server");
  } else if (cluster.workers.size() > 1) {
    f.strategy = "collective_all_reduce";  // `cluster_of` reports what is wrong with the cluster
  } else {
    f.strategy = "mirrored";
  }
  const std::string text =
      fmt::format("strategy: {}, because {}; --strategy chooses another", f.strategy, why);
  if (processes > 1)
    log.debug("{}", text);  // the line of the strategy has the processes, too
  else if (!why.empty())
    log.info("{}", text);
  return f;
}

// Runs a job with servers: the processes that a launcher started become its tasks.
int run_tasks(const TrainFlags& f, const Program& program, const strategies::Launch& launch) {
  together([&] { naming_the_file(program.configured, [&] { check_together(f, launch.size); }); });
  strategies::LaunchedOptions tasks;
  tasks.servers = f.servers.number;
  tasks.restarts = f.servers.restarts;
  tasks.interface = f.communication.network.interface;
  tasks.tls = f.servers.tls;
  tasks.insecure = f.servers.insecure;
  if (f.deadline_seconds) tasks.deadline = strategy_options(f).deadline.value();
  tasks.log = Log(fmt::format("process {}", launch.rank), f.verbosity.level());
  return strategies::run_launched_task(program.argv, tasks);
}

engine::FitOptions fit_options(const TrainFlags& f, const engine::data::Sets& sets,
                               const std::atomic<int>& interrupt) {
  engine::FitOptions fit;
  fit.epochs = f.training.epochs.value_or(kEpochs);
  fit.steps = f.training.steps;
  fit.global_batch = f.data.global_batch;
  fit.accumulate = f.training.accumulate;
  fit.steps_ahead = f.devices.steps_ahead;
  fit.steps_per_execution = f.training.steps_per_execution;
  fit.checkpoints = f.files.checkpoints;
  const Interval every = interval_of(f.files.every).value();
  fit.every = every.steps;
  fit.every_seconds = every.seconds;
  fit.keep = f.files.keep;
  fit.notes = data_notes(f.data);
  // A synchronous job continues from its last checkpoint if a server was restarted without its
  // values.
  if (f.strategy == "parameter_server" && !f.files.checkpoints.empty())
    fit.retries = f.servers.restarts;
  fit.test = sets.test.get();
  fit.evaluate_every = f.training.evaluate_every;
  fit.interrupt = &interrupt;
  return fit;
}

void warn_of_idle_replicas(const TrainFlags& f, std::size_t replicas, const Log& log) {
  if (f.data.global_batch >= replicas) return;
  log.warning(
      "--batch {} has no example for {} of the {} replicas, which idle: use --batch {} or more, "
      "or fewer replicas",
      f.data.global_batch, replicas - f.data.global_batch, replicas, replicas);
}

strategies::SessionOptions session_options(const TrainFlags& f,
                                           const strategies::StrategyOptions& options,
                                           const collectives::Network& between_hosts, bool launched,
                                           const Log& log) {
  return {.deadline = options.deadline.value_or(std::chrono::seconds(60)),
          .network = between_hosts,
          .insecure = f.servers.insecure,
          .launched = launched,
          .gpus = {.memory_fraction = f.devices.memory_fraction,
                   .memory_bytes = f.gpu_memory_bytes(),
                   .tf32 = f.devices.tf32 == "on",
                   .plan_cache = collectives::cache_folder(),
                   .log = log},
          .log = log};
}

strategies::Launch launch_of(const TrainFlags& f) {
  together([&] { f.communication.network.launch.publish(); });
  return strategies::launch();
}

int train(const TrainFlags& given, const Program& program) {
  if (is_evaluator(given)) return run_evaluator(given, program);
  strategies::Launch launch = launch_of(given);
  const TrainFlags f =
      with_strategy(given, launch.size,
                    Log("", launch.rank == 0 ? given.verbosity.level() : Log::Level::kWarning));
  const Cluster cluster = together([&] { return cluster_of(f, Log()); });
  const bool alone = f.strategy == "mirrored" && launch.launcher == "TF_CONFIG";
  if (alone) launch = {};
  if (f.strategy == "parameter_server" && !cluster && launch.size > 1)
    return run_tasks(f, program, launch);
  end_at_signals();
  if (cluster) {
    const std::string who = to_string(task_name(cluster->spec, cluster->task));
    if (cluster->task.role == strategies::Role::kServer)
      return serve_task(f, *cluster, watch_signals(), Log(who, Log::Level::kWarning));
    launch.present = true;
    launch.rank = int(cluster->task.number);
    launch.size = int(cluster->spec.workers.size());
  }
  const bool first = !launch.present || launch.rank == 0;
  Log log(first ? "" : fmt::format("process {}", launch.rank),
          first ? f.verbosity.level() : Log::Level::kWarning);
  // Errors in flags are reported before waiting for other processes.
  const auto flags = [&](auto body, bool each_host = false) {
    return together([&] { return naming_the_file(program.configured, body); }, each_host);
  };
  engine::GraphSpec graph = flags([&] {
    check_together(f, launch.size);
    engine::GraphSpec model =
        models::build(f.model, {.synchronised = f.batch_norm == "synchronised"});
    smooth_labels(model, f.training.label_smoothing);
    return model;
  });
  const engine::optim::Optimizer rule = flags([&] { return choose_optimizer(f.optimizer); });
  const strategies::StrategyOptions options = flags([&] { return strategy_options(f); });
  const bool each_host = true;
  const collectives::Network between_hosts =
      flags([&] { return f.communication.network.network(); }, each_host);
  const engine::data::Sets sets = flags([&] { return data(f, graph, launch.size); }, each_host);

  strategies::Session session(program.argc, program.argv,
                              session_options(f, options, between_hosts, !cluster && !alone, log));
  std::optional<Records> records;
  open_chief_files(session, [&] { records.emplace(f, launch.rank == 0, log); });
  const auto strategy = choose_strategy(f, session, cluster, options);
  const engine::Membership membership = strategy->membership();
  if (membership.chief) {
    warn_of_idle_replicas(f, std::size_t(membership.size), log);
    warn_of_warm_up(f, sets.train->size(), std::size_t(membership.size), log);
  }
  engine::TrainerOptions trainer_options;
  trainer_options.seed = f.data.seed;
  trainer_options.model = f.model;
  trainer_options.log = log;
  engine::Trainer trainer(*strategy, std::move(graph), rule, trainer_options);
  TrainReports reports(f, sets, *strategy, *records, rule.describe(), log);
  const std::atomic<int>& interrupt = watch_signals();
  std::optional<SignalAnswer> answer;
  if (membership.chief && !f.verbosity.quiet)
    answer.emplace(interrupt, "the run ends after this step");
  engine::FitOptions fit = fit_options(f, sets, interrupt);
  reports.listen(fit);
  const engine::History history = [&] {
    try {
      return trainer.fit(*sets.train, fit);
    } catch (const engine::Error& error) {
      records->failed(error.what());
      throw;
    }
  }();
  answer.reset();
  reports.end(history, session.memory_of_gpus(), *strategy);
  // The job ends only here: if the chief died before it printed its result, the others would report
  // that.
  strategy->run([&](engine::Replica& r) { strategy->gather(r, {}, "the end of the job"); });
  if (history.interrupted != 0) return exit_code_of_signal(history.interrupted);
  unwatch_signals();
  return kDone;
}

}  // namespace

Command add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();  // lives as long as the parser's callbacks
  declare(app, *flags);
  return [flags](const Program& program) { return train(*flags, program); };
}

}  // namespace lockstep::tools
