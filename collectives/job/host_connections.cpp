// SPDX-License-Identifier: MIT
#include "collectives/job/host_connections.h"

#include <fmt/core.h>

#include <optional>
#include <set>

#include "collectives/bootstrap/outcome.h"
#include "collectives/tcp/tcp_transport.h"

namespace lockstep::collectives {
namespace {

// Returns the pairs {rank here, rank there} that exchange messages.
std::vector<std::pair<int, int>> pairs_of(const std::vector<int>& mine, const StepPlan& plan) {
  std::set<std::pair<int, int>> pairs;
  for (const int rank : mine)
    for (const Stage& stage : plan)
      for (const Lane& lane : stage.plan.lanes[std::size_t(rank)])
        for (const Step& step : lane)
          if (step.peer >= 0) pairs.insert({rank, step.peer});
  return {pairs.begin(), pairs.end()};
}

std::vector<std::unique_ptr<Transport>> connect_sockets(
    const JobRanks& ranks, const std::vector<std::pair<int, int>>& pairs, const Network& network,
    std::chrono::milliseconds deadline, const std::string& what) {
  std::optional<TcpFabric> fabric;
  // Each process sends an address and a secret, and that of the first process is used. If all know
  // a secret already, they use it, because strangers may read this exchange.
  const std::string known = ranks.bootstrap.secret();
  const auto all = all_or_none(ranks.bootstrap, what + "addresses of the ranks", [&] {
    fabric.emplace(TcpOptions{network.interface, network.first_port, network.last_port});
    return fabric->address() + "\n" + (known.empty() ? random_secret() : "");
  });
  std::vector<std::string> address;
  for (const int process : ranks.process) {
    const std::string& text = all[std::size_t(process)];
    address.push_back(text.substr(0, text.find('\n')));
  }
  const std::size_t end = all[0].find('\n');
  const JobKey key{.job = what + all[0].substr(0, end),
                   .secret = known.empty() ? all[0].substr(end + 1) : known};
  return fabric->connect(ranks.mine(), pairs, address, key, deadline,
                         [&] { ranks.bootstrap.throw_if_abandoned(); });
}

}  // namespace

std::vector<std::unique_ptr<Transport>> connect_hosts(const JobRanks& ranks, const StepPlan& plan,
                                                      const Network& network,
                                                      std::chrono::milliseconds deadline,
                                                      const std::string& what) {
  const std::vector<int> mine = ranks.mine();
  if (ranks.one_host()) return std::vector<std::unique_ptr<Transport>>(mine.size());
  const auto pairs = pairs_of(mine, plan);
  if (transport_of(network) == "mpi") return ranks.bootstrap.transports(ranks.process, pairs, what);
  return connect_sockets(ranks, pairs, network, deadline, what);
}

}  // namespace lockstep::collectives
