// SPDX-License-Identifier: MIT
#include "strategies/session/launched_task.h"

#include "collectives/machine.h"
#include "engine/base/error.h"
#include "strategies/parameter_server/host_port.h"
#include "strategies/parameter_server/tf_config.h"
#include "strategies/pmix/exchange.h"
#include "strategies/session/held_port.h"
#include "strategies/session/supervisor.h"

namespace lockstep::strategies {

int run_launched_task(char** argv, const LaunchedOptions& options) {
  // Signals first: PMIx has a thread of its own, which must not take them.
  Supervisor supervisor(options.log);
  const auto job = pmix::join();
  const ClusterTask me = role_of_rank(job->rank(), job->size(), options.servers);
  const bool one_host = job->host_size() == job->size();
  const std::string host = !options.host.empty() ? options.host
                           : one_host            ? "127.0.0.1"
                                                 : collectives::machine().hostname;
  const HeldPort port(HostPort{host, 0}.loopback());
  const std::string mine = to_string(HostPort{host, port.port()});
  const std::vector<std::string> addresses =
      job->all("addresses", mine, engine::Clock::now() + options.deadline);
  const ClusterSpec cluster = cluster_of_ranks(addresses, options.servers);
  const bool chief = me.role == Role::kChief;
  return supervisor.run(
      argv, {.name = to_string(task_name(cluster, me)),
             .restarts = chief ? 0 : options.restarts,
             .why_never = chief ? "the job ends with its chief, and the same command goes "
                                  "on from the last checkpoint, if there is one"
                                : TaskOptions().why_never,
             .words = {{"TF_CONFIG", tf_config(cluster, me)}}});
}

}  // namespace lockstep::strategies
