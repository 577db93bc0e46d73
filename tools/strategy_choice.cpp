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
  strategies::ServerOptions options;
  options.servers = f.servers;
  options.updates = f.updates;
  options.updates.bfloat16 = f.wire == "bfloat16";
  options.updates.touched_rows = f.tables == "rows";
  options.updates.prefetch = f.prefetch == "on";
  options.place = f.place;
  options.partition = f.partition;
  options.tls = f.tls;
  options.insecure = f.insecure;
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
  options.device = f.device;
  options.devices = f.devices;
  options.threads = f.threads;
  if (!f.dtype.empty()) options.step.dtype = engine::dtype_of(f.dtype);
  if (f.loss_scale) options.step.loss_scale = loss_scaling(*f.loss_scale);
  options.step.algorithm = f.algorithm;
  options.step.update = strategies::update_of(f.update);
  if (f.strategy != "parameter_server" && !f.wire.empty())
    options.step.wire = engine::dtype_of(f.wire);
  const bool host_takes_part = f.steps_ahead == 0 || !f.profile.empty();
  options.step.graphs = strategies::graphs_of(f.graphs);
  if (host_takes_part && options.step.graphs == strategies::Graphs::kAutomatic)
    options.step.graphs = strategies::Graphs::kOff;
  options.step.gpu_exchange = strategies::gpu_exchange_of(f.gpu_exchange);
  options.bind = f.bind == "auto";
  if (!f.kernels.empty()) options.step.kernels = engine::kernels_of(f.kernels);
  options.step.bucket_bytes = f.bucket_bytes();
  options.memory_limit = f.memory_limit_bytes();
  options.step.recompute = f.recompute;
  options.measured = !f.assumed;
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
    if (cluster) mine.memory_limit = 0;  // it was of the servers' tasks
    return strategies::make_parameter_server(session, servers, mine);
  }
  return strategies::make_strategy(f.strategy, session, options);
}

// Flags of another strategy than the one that was asked for.
void check_servers(const TrainFlags& f) {
  strategies::parse_placement(f.place);
  strategies::parse_partition(f.partition);
  const TrainFlags none;
  const strategies::UpdateOptions& updates = f.updates;
  if (f.strategy != "parameter_server") {
    const std::pair<const char*, bool> changed[] = {
        {"--servers", f.servers != none.servers},
        {"--sync", updates.synchronous},
        {"--aggregate", updates.aggregate != none.updates.aggregate},
        {"--full-rate", !updates.scale_rate},
        {"--most-staleness", updates.most_staleness != none.updates.most_staleness},
        {"--warm-up", updates.warm_up != none.updates.warm_up},
        {"--tables", f.tables != none.tables},
        {"--prefetch", f.prefetch != none.prefetch},
        {"--place", f.place != none.place},
        {"--partition", f.partition != none.partition},
        {"--restarts", f.restarts != none.restarts},
        {"--insecure", f.insecure},
        {"--tls-authority", !f.tls.authority.empty()},
        {"--tls-certificate", !f.tls.certificate.empty()},
        {"--tls-key", !f.tls.key.empty()}};
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
  engine::require(f.prefetch == none.prefetch || !updates.synchronous,
                  "--prefetch with --sync: its weights come when all gradients are there");
  engine::require(
      f.algorithm == none.algorithm && f.update == none.update && f.bucket == none.bucket,
      "--algorithm, --update and --bucket are of an all-reduce, which parameter_server "
      "has not: leave them out");
  engine::require(
      f.gpu_exchange == none.gpu_exchange,
      "--gpu-exchange is of collective_all_reduce; workers of parameter_server exchange "
      "with servers: leave it out");
  engine::require(f.graphs != "on",
                  "--graphs on: workers of parameter_server talk to servers within a step: leave "
                  "it out, or give another --strategy");
  engine::require(
      !f.recompute,
      "--recompute saves memory of mirrored and collective_all_reduce; parameter_server "
      "does not plan it: leave it out");
  engine::require(
      !f.loss_scale,
      "--loss-scale is of mirrored and collective_all_reduce: weights on servers are of "
      "32 bits; leave it out");
  engine::require(f.clip == 0,
                  "--clip needs the norm of all gradients, and no parameter server sees them all: "
                  "leave it out, or give another --strategy");
}

void check_device(const TrainFlags& f) {
  std::vector<std::string> asked = f.devices.empty() ? std::vector{f.device} : f.devices;
  const bool automatic = asked == std::vector<std::string>{"auto"};
  if (automatic && f.dtype.empty()) return;
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
    if (f.dtype.empty() || device.supports(engine::dtype_of(f.dtype))) continue;
    std::string others;
    for (const auto& other : devices)
      if (other->supports(engine::dtype_of(f.dtype)))
        others += ", or give --device " + other->id().kind;
    engine::fail(engine::Code::kInvalid,
                 "--dtype {}: {} has no kernels for it: give another --dtype{}", f.dtype,
                 to_string(device.id()), others);
  }
}

}  // namespace lockstep::tools
