// SPDX-License-Identifier: MIT
// The parameter server strategy, made from a session. In one process, the servers run inside it and
// its replicas are the workers:
//
//   auto strategy = lockstep::parameter_server(session, {.servers = 2});
//
// In a task of a cluster, its replicas are some of the workers. The servers are separate tasks
// (server_task.h) at the cluster's addresses; the chief also listens at its address.
//
// Without `cluster`, TF_CONFIG or mpirun decides the roles; see `parameter_server` below.
// parameter_server.h describes the options.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "strategies/grpc/server.h"
#include "strategies/grpc/tls_files.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/session/factories.h"

namespace lockstep::strategies {

struct ServerOptions {
  int servers = 1;
  UpdateOptions updates = {};
  std::string place = "round_robin";             // or "greedy": by bytes
  std::string partition = "none";                // "fixed:3", "min:64KiB", "max:4MiB"
  std::optional<PlacementRules> placement = {};  // instead of `place` and `partition`
  std::string container = "train";               // name of the variables' container on servers
  int restarts = 3;                              // per killed task, under mpirun
  // This process's task, a worker or the chief. All worker processes must have equally many
  // replicas.
  std::optional<ClusterConfig> cluster = {};  // instead of `servers`
  grpc::TlsFiles tls = {};
  bool insecure = false;  // see grpc::ServeOptions
};

class LocalCluster;

// Owns the servers. It is a base class, so that they outlive the strategy that calls them.
struct JobServers {
  explicit JobServers(std::shared_ptr<LocalCluster> cluster) : local(std::move(cluster)) {}
  std::shared_ptr<LocalCluster> local;
};

class ParameterServerJob : private JobServers, public ParameterServer {
 public:
  // Listens as `chief` says; null if no process follows this one.
  ParameterServerJob(std::shared_ptr<LocalCluster> cluster, ParameterServerOptions options,
                     const grpc::ServeOptions* chief);
  ~ParameterServerJob() override;

 private:
  std::unique_ptr<grpc::Server> chief_;
};

// Makes the strategy. Without `cluster`, TF_CONFIG says whether this process is a task of a
// cluster. If mpirun started several processes, the last `servers` are servers and the others
// workers.
//
// In these cases the call returns only in workers. A server's task serves inside the call; an
// mpirun process supervises its task, a second start of this program (launched_task.h). Both then
// exit by std::exit, with 0 or, if the job failed, 75. Therefore make the strategy before loading
// data or starting threads. Throws Error(kInvalid) in a build without gRPC.
ParameterServerJob parameter_server(Session& session, const ServerOptions& servers = {},
                                    const StrategyOptions& options = {});
std::unique_ptr<engine::Strategy> make_parameter_server(Session& session,
                                                        const ServerOptions& servers = {},
                                                        const StrategyOptions& options = {});

}  // namespace lockstep::strategies
