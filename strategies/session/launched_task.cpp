// SPDX-License-Identifier: MIT
#include "strategies/session/launched_task.h"

#include <netdb.h>

#include <memory>

#include "collectives/mpi/mpi_bootstrap.h"
#include "collectives/tcp/socket.h"
#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/parameter_server/rpc/host_port.h"
#include "strategies/pmix/exchange.h"
#include "strategies/session/chief_end.h"
#include "strategies/session/held_port.h"
#include "strategies/session/supervisor.h"

namespace lockstep::strategies {

namespace {

constexpr char kEndsWithChief[] =
    "the job ends with its chief, and the same command goes on from the last checkpoint, if there "
    "is one";

constexpr std::chrono::seconds kForTheChief{10};
constexpr std::chrono::seconds kForLateWorkers{2};

// Returns whether this host resolves the name to loopback addresses only, so that other hosts
// cannot use it.
bool is_loopback(const std::string& name) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return true;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
        0)
      continue;
    if (!HostPort{text, 0}.loopback()) return false;
  }
  return true;
}

std::string own_host(const std::string& interface, bool one_host) {
  if (!interface.empty()) return collectives::tcp::local_addresses(interface)[0];
  if (one_host) return "127.0.0.1";
  const std::string name = collectives::machine().hostname;
  return is_loopback(name) ? collectives::tcp::local_addresses()[0] : name;
}

}  // namespace

int run_launched_task(char** argv, const LaunchedOptions& options) {
  // Signals come first, because PMIx has its own thread, which must not receive them.
  Supervisor supervisor(options.log);
  const auto job = pmix::join();
  const ClusterTask me = role_of_rank(job->rank(), job->size(), options.servers);
  const bool one_host = job->host_size() == job->size();
  const std::string keep_alive = collectives::mpi::missing_keep_alive();
  if (!one_host && job->rank() == 0 && !keep_alive.empty()) options.log.warning("{}", keep_alive);
  const std::string host = own_host(options.interface, one_host);
  const HeldPort port(HostPort{host, 0}.loopback());
  const std::string mine = to_string(HostPort{host, port.port()});
  const std::vector<std::string> addresses =
      job->all("addresses", mine, engine::Clock::now() + options.deadline);
  const ClusterSpec cluster = cluster_of_ranks(addresses, options.servers);
  const bool chief = me.role == Role::kChief;
  const grpc::ServeOptions serve{.tls = options.tls, .insecure = options.insecure};
  try {
    const int code =
        supervisor.run(argv, {.name = to_string(task_name(cluster, me)),
                              .restarts = chief ? 0 : options.restarts,
                              .why_never = chief ? kEndsWithChief : TaskOptions().why_never,
                              .words = {{"TF_CONFIG", tf_config(cluster, me)}}});
    if (!chief && code == kTryAgain) supervisor.linger(kForTheChief);
    // Workers that did not call the chief before it failed learn of its end here.
    if (chief && code != 0 && !ended_by_signal(code))
      report_chiefs_end(cluster, "it failed", serve, kForLateWorkers);
    return code;
  } catch (const engine::Error& error) {
    if (chief && error.code() == engine::Code::kPeerLost) {
      report_chiefs_end(cluster, "it was killed", serve);
    }
    throw;
  }
}

}  // namespace lockstep::strategies
