// SPDX-License-Identifier: MIT
// The third strategy, from a session. In one process the servers lie within it, and its replicas
// are the workers:
//
//   auto strategy = lockstep::parameter_server(session, {.servers = 2});
//
// As a task of a cluster its replicas are some of the workers; the servers are tasks of their own
// (server_task.h), at the addresses that the cluster says. The chief listens at its address, too.
//
// What follows of each option stands in parameter_server.h. Throws Error(kInvalid) in a build
// without gRPC, whose messages these are.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "strategies/grpc/server.h"
#include "strategies/grpc/tls_files.h"
#include "strategies/parameter_server/parameter_server.h"
#include "strategies/parameter_server/tf_config.h"
#include "strategies/session/factories.h"

namespace lockstep::strategies {

struct ServerOptions {
  int servers = 1;
  UpdateOptions updates = {};
  std::string place = "round_robin";  // or "greedy": by bytes
  std::string partition = "none";     // "fixed:3", "min:64KiB", "max:4MiB"
  // This process is that task, a worker's or the chief's; all of them have as many replicas.
  std::optional<ClusterConfig> cluster = {};  // instead of `servers`
  grpc::TlsFiles tls = {};
  bool insecure = false;  // see grpc::ServeOptions
};

class LocalCluster;

// A base, so that the servers outlive the strategy that calls them.
struct JobServers {
  explicit JobServers(std::shared_ptr<LocalCluster> cluster) : local(std::move(cluster)) {}
  std::shared_ptr<LocalCluster> local;
};

class ParameterServerJob : private JobServers, public ParameterServer {
 public:
  // `chief`: where the chief listens; null where nobody follows.
  ParameterServerJob(std::shared_ptr<LocalCluster> cluster, ParameterServerOptions options,
                     const grpc::ServeOptions* chief);
  ~ParameterServerJob() override;

 private:
  std::unique_ptr<grpc::Server> chief_;
};

ParameterServerJob parameter_server(Session& session, const ServerOptions& servers = {},
                                    const StrategyOptions& options = {});
std::unique_ptr<engine::Strategy> make_parameter_server(Session& session,
                                                        const ServerOptions& servers = {},
                                                        const StrategyOptions& options = {});

}  // namespace lockstep::strategies
