// SPDX-License-Identifier: MIT
#include "strategies/session/parameter_server_job.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "strategies/grpc/connection.h"
#include "strategies/parameter_server/rpc/host_port.h"
#include "strategies/parameter_server/rpc/shared_connection.h"
#include "strategies/session/launched_task.h"
#include "strategies/session/local_cluster.h"
#include "strategies/session/server_task.h"

namespace lockstep::strategies {
namespace {

using engine::require;

struct Parts {
  std::shared_ptr<LocalCluster> cluster = {};
  ParameterServerOptions options = {};
  std::optional<grpc::ServeOptions> chief = {};
};

// Returns whether the task's address has the same host as this task's.
bool near(const ClusterConfig& cluster, const std::string& address) {
  return parse_host_port(address).host ==
         parse_host_port(address_of(cluster.spec, cluster.task)).host;
}

// Returns this process's share of GPUs among the workers' processes of this host.
GpuShare neighbours(const ClusterConfig& cluster) {
  const auto here = [&](const std::string& address) { return near(cluster, address); };
  const auto& workers = cluster.spec.workers;
  const auto me = workers.begin() + std::ptrdiff_t(std::min(cluster.task.number, workers.size()));
  return {int(std::count_if(workers.begin(), me, here)),
          int(std::count_if(workers.begin(), workers.end(), here))};
}

// Gives all workers' processes equally many replicas. Surplus GPUs stay unused. With "auto", where
// each process chooses its own kind of device, the default is one replica.
StrategyOptions with_equal_devices(Session& session, StrategyOptions options, GpuShare share) {
  if (options.device == "auto") options.replicas = options.replicas.value_or(1);
  options = with_kind(session, std::move(options), share);
  if (options.device == "cuda" && !options.replicas)
    options.replicas = std::max(1, int(session.gpus().size()) / share.among);
  return with_devices(session, options, share);
}

// Connects to a server. Bodies of messages to a server on this host use shared memory.
std::unique_ptr<rpc::Connection> connect_server(const ClusterConfig& cluster, std::size_t server,
                                                const grpc::ConnectOptions& options,
                                                const engine::Log& log) {
  const std::string& address = cluster.spec.servers[server];
  auto connection = grpc::connect(address, options);
  if (!near(cluster, address)) return connection;
  return std::make_unique<rpc::SharedConnection>(std::move(connection), log);
}

void join_cluster(const ClusterConfig& cluster, const ServerOptions& servers, int replicas,
                  Parts& parts) {
  const ClusterTask& me = cluster.task;
  require(me.role == Role::kChief || me.role == Role::kWorker,
          "{} does not train: it is no worker's task", to_string(task_name(cluster.spec, me)));
  ParameterServerOptions& options = parts.options;
  const grpc::ConnectOptions connect{.tls = servers.tls};
  options.servers = cluster.spec.servers.size();
  options.cluster = to_string(cluster.spec);
  options.near = std::size_t(std::ranges::count_if(
      cluster.spec.servers, [&](const std::string& address) { return near(cluster, address); }));
  options.connect = [cluster, connect, log = options.log](std::size_t server) {
    return connect_server(cluster, server, connect, log);
  };
  options.workers = int(cluster.spec.workers.size()) * replicas;
  options.first_worker = int(me.number) * replicas;
  if (me.number > 0) {
    options.chief = [address = cluster.spec.workers[0], connect] {
      return grpc::connect(address, connect);
    };
  } else if (cluster.spec.workers.size() > 1) {
    parts.chief.emplace();
    parts.chief->address = cluster.spec.workers[0];
    parts.chief->tls = servers.tls;
    parts.chief->insecure = servers.insecure;
  }
}

// Runs a server's task until its end; returns the exit code.
int serve(const ClusterConfig& cluster, const ServerOptions& servers,
          std::chrono::milliseconds life, const engine::Log& log) {
  ServerTaskOptions options;
  options.serve.address = address_of(cluster.spec, cluster.task);
  options.serve.tls = servers.tls;
  options.serve.insecure = servers.insecure;
  options.life = life;
  options.log = log;
  const auto end = server_task(options)->join();
  if (end->failed) log.error("the chief ended the job: {}", end->why);
  return end->failed ? kTryAgain : 0;
}

// Determines the role of this process if it is not given. Returns only in processes that train.
ServerOptions take_part(Session& session, ServerOptions servers,
                        std::chrono::milliseconds deadline) {
  if (servers.cluster) return servers;
  if (const char* text = tf_config_of_environment()) {
    servers.cluster = parse_tf_config(text, ClusterUse::kParameterServer);
    for (const std::string& warning : servers.cluster->warnings)
      session.log().warning("{}", warning);
    if (servers.cluster->task.role == Role::kServer)
      std::exit(serve(*servers.cluster, servers, deadline, session.log()));
    return servers;
  }
  if (session.launch().size <= 1) return servers;
  require(session.arguments() != nullptr,
          "parameter_server has processes of its own, and none on a communicator: make the session "
          "from argc and argv");
  // No threads of the session are left.
  session.connected();
  std::exit(run_launched_task(session.arguments(), {.servers = servers.servers,
                                                    .restarts = servers.restarts,
                                                    .deadline = deadline,
                                                    .tls = servers.tls,
                                                    .insecure = servers.insecure,
                                                    .log = session.log()}));
}

// Throws if options are given that only an all-reduce uses.
void refuse_sums(const StrategyOptions& options) {
  const StrategyOptions none;
  std::vector<std::string_view> given;
  const auto look = [&](std::string_view name, bool as_it_was) {
    if (!as_it_was) given.push_back(name);
  };
  look("algorithm", options.step.algorithm == none.step.algorithm);
  look("update", options.step.update == none.step.update);
  look("bucket_bytes", options.step.bucket_bytes == none.step.bucket_bytes);
  look("wire", options.step.wire == none.step.wire);
  look("gpu_exchange", options.step.gpu_exchange == none.step.gpu_exchange);
  look("graphs", options.step.graphs != Graphs::kOn);
  look("overlap", options.step.overlap == none.step.overlap);
  look("shares", options.shares == none.shares);
  require(!options.step.loss_scale,
          "parameter_server has no loss scale: its weights are of 32 bits; leave out loss_scale");
  require(options.memory_limit == none.memory_limit,
          "memory_limit bounds what servers' tasks hold, and here servers are part of the process: "
          "leave out memory_limit");
  require(given.empty(),
          "parameter_server has no all-reduce, and takes none of its options: leave out {}",
          fmt::join(given, ", "));
}

Parts parts(Session& session, const ServerOptions& asked, const StrategyOptions& given) {
  require(asked.servers >= 1, engine::Option::kServers,
          "{} servers were asked for: a parameter server strategy needs at least 1", asked.servers);
  refuse_sums(given);
  Parts parts;
  const std::chrono::milliseconds deadline = given.deadline.value_or(parts.options.deadline);
  const ServerOptions servers = take_part(session, asked, deadline);
  const GpuShare share = servers.cluster ? neighbours(*servers.cluster) : GpuShare();
  const StrategyOptions options = with_equal_devices(session, given, share);
  ParameterServerOptions& result = parts.options;
  result.threads = threads_of(options, share.among);
  result.devices = devices_of(session, options);
  engine::Device& device = *result.devices.front();
  if (device.id().kind != "cuda") {
    const int replicas = int(options.devices.size()) * share.among;
    const int of_servers = servers.cluster ? 0 : servers.servers;  // they are also in this process
    session.watch_processors(result.threads, result.threads * replicas + of_servers);
  }
  result.dtype = options.step.dtype.value_or(kept_dtype(device));
  result.kernels = options.step.kernels;
  result.updates = servers.updates;
  result.placement.placer = parse_placement(servers.place);
  result.placement.partitioner = parse_partition(servers.partition);
  if (servers.placement) result.placement = *servers.placement;
  result.container = servers.container;
  result.deadline = deadline;
  result.profiler = session.profiler();
  result.log = session.log();
  if (servers.cluster) {
    join_cluster(*servers.cluster, servers, int(result.devices.size()), parts);
    return parts;
  }
  result.servers = std::size_t(servers.servers);
  // Servers keep variables in host memory, whatever the workers' device.
  engine::Device& updates =
      device.id().kind == "cuda" ? engine::find(session.devices(), {"cpu", 0}) : device;
  parts.cluster =
      std::make_shared<LocalCluster>(result.servers, updates, *result.dtype, session.log());
  result.connect = [cluster = parts.cluster](std::size_t server) {
    return cluster->connect(server);
  };
  return parts;
}

const grpc::ServeOptions* address(const Parts& parts) {
  return parts.chief ? &*parts.chief : nullptr;
}

}  // namespace

ParameterServerJob::ParameterServerJob(std::shared_ptr<LocalCluster> cluster,
                                       ParameterServerOptions options,
                                       const grpc::ServeOptions* chief)
    : JobServers(std::move(cluster)), ParameterServer(std::move(options)) {
  if (chief != nullptr) chief_ = grpc::serve(scheduler(), *chief);
}

// Tells the other processes about the end while the service can still answer them.
ParameterServerJob::~ParameterServerJob() {
  close();
}

ParameterServerJob parameter_server(Session& session, const ServerOptions& servers,
                                    const StrategyOptions& options) {
  Parts made = parts(session, servers, options);
  return ParameterServerJob(std::move(made.cluster), std::move(made.options), address(made));
}

std::unique_ptr<engine::Strategy> make_parameter_server(Session& session,
                                                        const ServerOptions& servers,
                                                        const StrategyOptions& options) {
  Parts made = parts(session, servers, options);
  return std::make_unique<ParameterServerJob>(std::move(made.cluster), std::move(made.options),
                                              address(made));
}

}  // namespace lockstep::strategies
