// SPDX-License-Identifier: MIT
#include "tools/strategy_choice.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "collectives/cost/cost_cache.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/runtime/devices.h"
#include "strategies/session/parameter_server_job.h"

namespace lockstep::tools {
namespace {

strategies::ServerOptions server_options(const TrainFlags& f) {
  const TrainFlags::Servers& servers = f.servers;
  strategies::ServerOptions options;
  options.servers = servers.number;
  options.updates = servers.updates;
  options.updates.bfloat16 = f.communication.wire == "bfloat16";
  options.updates.touched_rows = servers.tables == "rows";
  options.updates.prefetch = servers.prefetch == "on";
  options.place = servers.place;
  options.partition = servers.partition;
  options.tls = servers.tls;
  options.insecure = servers.insecure;
  return options;
}

engine::LossScaling loss_scaling(const std::string& text) {
  if (text == "dynamic") return engine::LossScaling::dynamically();
  double scale = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, scale);
  engine::require(error == std::errc() && at == end && std::isfinite(scale) && scale > 0,
                  "--loss-scale '{}': it is a number from 2^-14 to 2^64, or dynamic",
                  engine::brief(text));
  return {.start = scale};
}

}  // namespace

strategies::StrategyOptions strategy_options(const TrainFlags& f) {
  strategies::StrategyOptions options;
  options.replicas = f.replicas;
  options.device = f.devices.all;
  options.devices = f.devices.each;
  options.threads = f.devices.threads;
  if (!f.training.dtype.empty()) options.step.dtype = engine::dtype_of(f.training.dtype);
  if (f.training.loss_scale) options.step.loss_scale = loss_scaling(*f.training.loss_scale);
  options.step.algorithm = f.communication.algorithm;
  options.step.update = strategies::update_of(f.update);
  if (f.strategy != "parameter_server" && !f.communication.wire.empty())
    options.step.wire = engine::dtype_of(f.communication.wire);
  const bool host_takes_part = f.devices.steps_ahead == 0 || !f.files.profile.empty();
  options.step.graphs = strategies::graphs_of(f.devices.graphs);
  if (host_takes_part && options.step.graphs == strategies::Graphs::kAutomatic)
    options.step.graphs = strategies::Graphs::kOff;
  options.step.gpu_exchange = strategies::gpu_exchange_of(f.communication.gpu_exchange);
  options.bind = f.devices.bind == "auto";
  if (!f.kernels.empty()) options.step.kernels = engine::kernels_of(f.kernels);
  options.step.bucket_bytes = f.bucket_bytes();
  options.memory_limit = f.memory_limit_bytes();
  options.step.recompute = f.recompute;
  options.measured = !f.communication.assumed;
  options.cost_cache = collectives::cache_folder();
  if (f.deadline_seconds) {
    options.deadline = std::chrono::milliseconds(std::int64_t(*f.deadline_seconds * 1000));
  }
  return options;
}

std::unique_ptr<engine::Strategy> choose_strategy(const TrainFlags& f, strategies::Session& session,
                                                  const Cluster& cluster,
                                                  const strategies::StrategyOptions& options) {
  if (f.strategy == "parameter_server") {
    strategies::ServerOptions servers = server_options(f);
    servers.cluster = cluster;
    strategies::StrategyOptions mine = options;
    if (cluster) mine.memory_limit = 0;  // the limit applies to the servers
    return strategies::make_parameter_server(session, servers, mine);
  }
  return strategies::make_strategy(f.strategy, session, options);
}

void check_servers(const TrainFlags& f) {
  const TrainFlags::Servers& servers = f.servers;
  const TrainFlags::Servers none;
  const strategies::UpdateOptions& updates = servers.updates;
  strategies::parse_placement(servers.place);
  strategies::parse_partition(servers.partition);
  if (f.strategy != "parameter_server") {
    const std::pair<const char*, bool> changed[] = {
        {"--servers", servers.number != none.number},
        {"--sync", updates.synchronous},
        {"--aggregate", updates.aggregate != none.updates.aggregate},
        {"--full-rate", !updates.scale_rate},
        {"--most-staleness", updates.most_staleness != none.updates.most_staleness},
        {"--warm-up", updates.warm_up != none.updates.warm_up},
        {"--tables", servers.tables != none.tables},
        {"--prefetch", servers.prefetch != none.prefetch},
        {"--place", servers.place != none.place},
        {"--partition", servers.partition != none.partition},
        {"--restarts", servers.restarts != none.restarts},
        {"--insecure", servers.insecure && f.strategy == "mirrored"},
        {"--tls-authority", !servers.tls.authority.empty()},
        {"--tls-certificate", !servers.tls.certificate.empty()},
        {"--tls-key", !servers.tls.key.empty()}};
    for (const auto& [flag, is_changed] : changed)
      engine::require(!is_changed,
                      "{} applies only to --strategy parameter_server, and the strategy is {}: "
                      "leave the flag out, or change the strategy",
                      flag, f.strategy);
    return;
  }
  engine::require(updates.aggregate == 0 || updates.synchronous,
                  "--aggregate {} without --sync: only synchronous updates wait for gradients",
                  updates.aggregate);
  engine::require(!updates.synchronous || (updates.scale_rate && updates.most_staleness == 0 &&
                                           updates.warm_up == none.updates.warm_up),
                  "--full-rate, --most-staleness and --warm-up are for asynchronous updates: with "
                  "--sync no gradient is stale, so leave them out");
  engine::require(servers.prefetch == none.prefetch || !updates.synchronous,
                  "--prefetch with --sync: its weights come when all gradients are there");
  const TrainFlags::Communication& communication = f.communication;
  const TrainFlags::Communication unset;
  engine::require(communication.algorithm == unset.algorithm && f.update == TrainFlags().update &&
                      communication.bucket == unset.bucket,
                  "--algorithm, --update and --bucket are of an all-reduce, which parameter_server "
                  "has not: leave them out");
  engine::require(
      communication.gpu_exchange == unset.gpu_exchange,
      "--gpu-exchange is of collective_all_reduce; workers of parameter_server exchange "
      "with servers: leave it out");
  engine::require(f.devices.graphs != "on",
                  "--graphs on: workers of parameter_server talk to servers within a step: leave "
                  "it out, or give another --strategy");
  engine::require(
      !f.recompute,
      "--recompute saves memory of mirrored and collective_all_reduce; parameter_server "
      "does not plan it: leave it out");
  engine::require(
      !f.training.loss_scale,
      "--loss-scale is of mirrored and collective_all_reduce: weights on servers are of "
      "32 bits; leave it out");
  engine::require(f.optimizer.clip == 0,
                  "--clip needs the norm of all gradients, and no parameter server sees them all: "
                  "leave it out, or give another --strategy");
}

void check_device(const TrainFlags& f) {
  std::vector<std::string> asked =
      f.devices.each.empty() ? std::vector{f.devices.all} : f.devices.each;
  const bool automatic = asked == std::vector<std::string>{"auto"};
  if (automatic && f.training.dtype.empty()) return;
  const auto is_gpu = [](const engine::DeviceId& id) { return id.kind == "cuda"; };
  const bool gpus = automatic || std::ranges::any_of(asked, is_gpu, engine::parse_device_id);
  const auto devices = gpus ? engine::all_devices() : engine::host_devices();
  if (automatic) {
    const auto gpu =
        std::ranges::find_if(devices, is_gpu, [](const auto& device) { return device->id(); });
    asked = {gpu == devices.end() ? "cpu" : to_string((*gpu)->id())};
  }
  for (const std::string& name : asked) {
    const engine::Device& device = engine::find(devices, engine::parse_device_id(name));
    if (f.training.dtype.empty() || device.supports(engine::dtype_of(f.training.dtype))) continue;
    std::string others;
    for (const auto& other : devices)
      if (other->supports(engine::dtype_of(f.training.dtype)))
        others += ", or give --device " + other->id().kind;
    engine::fail(engine::Code::kInvalid,
                 "--dtype {}: {} has no kernels for it: give another --dtype{}", f.training.dtype,
                 to_string(device.id()), others);
  }
}

}  // namespace lockstep::tools
