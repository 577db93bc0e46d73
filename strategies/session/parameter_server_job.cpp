// SPDX-License-Identifier: MIT
#include "strategies/session/parameter_server_job.h"

#include <algorithm>
#include <utility>

#include "collectives/machine.h"
#include "engine/base/error.h"
#include "strategies/session/local_cluster.h"

namespace lockstep::strategies {
namespace {

using engine::require;

struct Parts {
  std::shared_ptr<LocalCluster> cluster;
  ParameterServerOptions options;
};

Parts parts(Session& session, const ServerOptions& servers, const StrategyOptions& options) {
  require(servers.servers >= 1, "--servers {}: a parameter server strategy needs at least 1",
          servers.servers);
  require(options.replicas >= 1, "a process needs at least one replica, not {}", options.replicas);
  engine::Device& device = session.device(options.device);
  Parts parts;
  ParameterServerOptions& result = parts.options;
  result.devices.assign(std::size_t(options.replicas), &device);
  result.dtype = options.dtype.value_or(device.default_dtype());
  result.threads = options.threads > 0
                       ? options.threads
                       : std::max(1, collectives::machine().cores / options.replicas);
  result.kernels = options.kernels;
  result.synchronous = servers.synchronous;
  result.aggregate = servers.aggregate;
  result.scale_rate = servers.scale_rate;
  result.most_staleness = servers.most_staleness;
  result.warm_up = servers.warm_up;
  result.bfloat16 = servers.bfloat16;
  result.placement.placer = parse_placement(servers.place);
  result.placement.partitioner = parse_partition(servers.partition);
  if (options.deadline) result.deadline = *options.deadline;
  result.log = session.log();
  result.servers = std::size_t(servers.servers);
  parts.cluster =
      std::make_shared<LocalCluster>(result.servers, device, *result.dtype, session.log());
  result.connect = [cluster = parts.cluster](std::size_t server) {
    return cluster->connect(server);
  };
  return parts;
}

}  // namespace

ParameterServerJob parameter_server(Session& session, const ServerOptions& servers,
                                    const StrategyOptions& options) {
  Parts made = parts(session, servers, options);
  return ParameterServerJob(std::move(made.cluster), std::move(made.options));
}

std::unique_ptr<engine::Strategy> make_parameter_server(Session& session,
                                                        const ServerOptions& servers,
                                                        const StrategyOptions& options) {
  Parts made = parts(session, servers, options);
  return std::make_unique<ParameterServerJob>(std::move(made.cluster), std::move(made.options));
}

}  // namespace lockstep::strategies
