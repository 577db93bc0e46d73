// SPDX-License-Identifier: MIT
// The third strategy, from a session. In one process the servers lie within it, and its replicas
// are the workers:
//
//   auto strategy = lockstep::parameter_server(session, {.servers = 2});
//
// As a task of a cluster its replicas are some of the workers; the servers are tasks of their own
// (server_task.h), at the addresses that the cluster says. The chief listens at its address, too.
//
// Without `cluster`, TF_CONFIG says whether this process is such a task; and where mpirun started
// several processes, the last `servers` are servers and the others workers. Then the call returns
// in workers alone: in a server's task it serves, and in a process that mpirun started it watches
// over its task, this program started once more (launched_task.h). Both leave the program, by
// std::exit, when their part is over, with 0, or with 75 where the job failed. So make the strategy
// before data are read and threads are started.
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
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/session/factories.h"

namespace lockstep::strategies {

struct ServerOptions {
  int servers = 1;
  UpdateOptions updates = {};
  std::string place = "round_robin";             // or "greedy": by bytes
  std::string partition = "none";                // "fixed:3", "min:64KiB", "max:4MiB"
  std::optional<PlacementRules> placement = {};  // instead of both: pins, functions
  std::string container = "train";               // under which servers keep the variables
  int restarts = 3;                              // of a task that is killed, under mpirun
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
