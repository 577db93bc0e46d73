// SPDX-License-Identifier: MIT
#include "strategies/session/factories.h"

#include <algorithm>

#include "collectives/nccl/nccl.h"
#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "engine/runtime/devices.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/session/gpu_assignment.h"

namespace lockstep::strategies {

namespace {

constexpr std::size_t kLongestFault = 500;  // maximum characters that are sent

// Returns one line with the GPUs and their locations.
std::string gpus_text(const std::vector<engine::Device*>& gpus) {
  std::string text;
  for (const engine::Device* gpu : gpus)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", to_string(gpu->id()),
                        gpu->description());
  return text;
}

bool several_processes(const Session& session) {
  return session.launch().several();
}

// Returns why this process cannot compute on GPUs; empty if it can.
std::string why_no_gpu(Session& session, const StrategyOptions& options, GpuShare share) {
  const std::vector<engine::Device*> gpus = session.gpus();
  if (gpus.empty()) return "no GPU was found";
  if (int(gpus.size()) < share.among)
    return fmt::format("{} processes of this host cannot have a GPU each: it has {}", share.among,
                       gpus.size());
  for (const int gpu :
       assigned_gpus({int(gpus.size()), share.number, share.among, options.replicas})) {
    const std::string fault = engine::fault_of(*gpus[std::size_t(gpu)]);
    if (!fault.empty()) return fault;
  }
  return {};
}

}  // namespace

StrategyOptions with_kind(Session& session, StrategyOptions options, GpuShare share,
                          bool together) {
  if (options.device != "auto" || !options.devices.empty()) return options;
  std::vector<std::string> faults{why_no_gpu(session, options, share)};
  if (together && several_processes(session))
    faults = session.bootstrap().all_gather(faults[0].substr(0, kLongestFault), "GPUs that work");
  const auto fault = std::ranges::find_if_not(faults, &std::string::empty);
  options.device = fault == faults.end() ? "cuda" : "cpu";
  if (fault == faults.end()) return options;
  // A machine without GPUs is normal; one whose GPUs do not work deserves a warning.
  const engine::Log& log = session.log();
  if (session.gpus().empty())
    log.debug("device: cpu, because {}", *fault);
  else
    log.warning("device: cpu, because {}", *fault);
  return options;
}

GpuShare share_of_gpus(Session& session, const StrategyOptions& options) {
  GpuShare share;
  const bool gpus = options.device == "cuda" || options.device == "auto";
  if (!gpus || !options.devices.empty() || !several_processes(session)) return share;
  const std::vector<std::string> seen =
      session.bootstrap().all_gather(gpus_text(session.gpus()), "GPUs that processes see");
  const std::vector<int> host = session.bootstrap().hosts();
  const auto me = std::size_t(session.bootstrap().process());
  share.among = 0;
  for (std::size_t process = 0; process < seen.size(); ++process) {
    if (host[process] != host[me] || seen[process] != seen[me]) continue;
    if (process == me) share.number = share.among;
    ++share.among;
  }
  return share;
}

StrategyOptions with_devices(Session& session, StrategyOptions options, GpuShare share) {
  if (!options.devices.empty()) return options;
  engine::require(options.replicas.value_or(1) >= 1, "a process needs at least one replica, not {}",
                  options.replicas.value_or(1));
  const std::vector<engine::Device*> gpus =
      options.device == "cuda" ? session.gpus() : std::vector<engine::Device*>();
  // Without GPUs the search for the device reports the reason.
  if (gpus.empty()) {
    options.devices.assign(std::size_t(options.replicas.value_or(1)), options.device);
    return options;
  }
  std::vector<engine::Device*> mine;
  for (const int gpu :
       assigned_gpus({int(gpus.size()), share.number, share.among, options.replicas}))
    mine.push_back(gpus[std::size_t(gpu)]);
  for (const engine::Device* gpu : mine) options.devices.push_back(to_string(gpu->id()));
  session.log().info("replicas on {}", gpus_text(mine));
  return options;
}

int threads_of(const StrategyOptions& options, int processes) {
  engine::require(options.threads >= 0, "threads cannot be negative; 0 shares the cores equally");
  const int here = int(options.devices.size()) * std::max(1, processes);
  return options.threads > 0 ? options.threads : std::max(1, collectives::machine().cores / here);
}

std::vector<engine::Device*> devices_of(Session& session, const StrategyOptions& options) {
  std::vector<engine::Device*> devices;
  for (const std::string& name : options.devices) devices.push_back(&session.device(name));
  return devices;
}

namespace {

bool on_several_gpus(const std::vector<engine::Device*>& devices) {
  return std::ranges::any_of(devices, [&](const engine::Device* device) {
    return device->id().kind == "cuda" && device->id() != devices[0]->id();
  });
}

// Returns the options of a strategy for the processes of the job together, or for this one alone.
SynchronousOptions synchronous(Session& session, const StrategyOptions& given, bool alone) {
  const bool together = !alone && several_processes(session);
  if (together) session.bootstrap();  // finds the processes of this host
  const GpuShare share = together ? share_of_gpus(session, given) : GpuShare();
  const StrategyOptions options =
      with_devices(session, with_kind(session, given, share, together), share);
  SynchronousOptions result;
  result.threads = threads_of(options, session.launch().local_size);
  result.devices = devices_of(session, options);
  if (result.devices[0]->id().kind != "cuda") {
    const int replicas = int(options.devices.size()) * session.launch().local_size;
    session.watch_processors(result.threads, result.threads * replicas);
  }
  const bool chief_of_gpus =
      together && session.launch().rank == 0 && result.devices[0]->id().kind == "cuda";
  if (chief_of_gpus || on_several_gpus(result.devices)) result.gpus = engine::gpu_topology();
  result.step = options.step;
  result.bind = options.bind;
  result.deadline = options.deadline;
  result.shares = options.shares;
  result.measured = options.measured;
  result.cost_cache = options.cost_cache;
  result.memory_limit = options.memory_limit;
  result.vendor = {collectives::nccl::version, collectives::nccl::open};
  result.network = session.network();
  result.profiler = session.profiler();
  result.log = session.log();
  return result;
}

// A cluster of TF_CONFIG that cannot be read, or has servers, must not become a job of one process.
void require_readable_cluster(const Session& session) {
  const char* const text = tf_config_of_environment();
  if (text != nullptr && !session.launch().present) parse_tf_config(text, ClusterUse::kAllReduce);
}

void refuse_several(const Session& session) {
  // This strategy ignores a cluster of TF_CONFIG, as TensorFlow does.
  engine::require(!session.launch().several() || session.launch().launcher == "TF_CONFIG",
                  "mirrored trains in one process, and {} were started: use "
                  "collective_all_reduce, or start one process",
                  session.launch().size);
}

}  // namespace

Mirrored mirrored(Session& session, const StrategyOptions& options) {
  refuse_several(session);
  return Mirrored(synchronous(session, options, true));
}

CollectiveAllReduce collective_all_reduce(Session& session, const StrategyOptions& options) {
  require_readable_cluster(session);
  const Connected connected{session};
  return CollectiveAllReduce(synchronous(session, options, false), session.bootstrap());
}

std::unique_ptr<engine::Strategy> make_strategy(std::string_view name, Session& session,
                                                const StrategyOptions& options) {
  if (name == "mirrored") {
    refuse_several(session);
    return std::make_unique<Mirrored>(synchronous(session, options, true));
  }
  if (name == "collective_all_reduce") {
    require_readable_cluster(session);
    const Connected connected{session};
    return std::make_unique<CollectiveAllReduce>(synchronous(session, options, false),
                                                 session.bootstrap());
  }
  engine::fail(
      engine::Code::kInvalid,
      "unknown strategy '{}'; known: mirrored, collective_all_reduce; make_parameter_server "
      "makes a strategy with servers",
      name);
}

}  // namespace lockstep::strategies
