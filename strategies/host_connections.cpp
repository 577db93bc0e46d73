// SPDX-License-Identifier: MIT
#include "strategies/host_connections.h"

#include <fmt/format.h>

#include <optional>
#include <random>
#include <set>

#include "collectives/outcome.h"
#include "collectives/tcp/tcp_transport.h"

namespace lockstep::strategies {
namespace {

// 32 bytes, as hexadecimal text for the bootstrap.
std::string random_key() {
  std::random_device device;
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("{:08x}", device());
  return text;
}

std::string key_bytes(const std::string& text) {
  std::string key;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    key += char(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return key;
}

// {rank here, rank there}
std::vector<std::pair<int, int>> pairs_of(const std::vector<int>& mine,
                                          const collectives::StepPlan& plan) {
  std::set<std::pair<int, int>> pairs;
  for (const int rank : mine)
    for (const collectives::Stage& stage : plan)
      for (const collectives::Lane& lane : stage.plan.lanes[std::size_t(rank)])
        for (const collectives::Step& step : lane)
          if (step.peer >= 0) pairs.insert({rank, step.peer});
  return {pairs.begin(), pairs.end()};
}

std::vector<std::unique_ptr<collectives::Transport>> connect_sockets(
    const JobRanks& ranks, const std::vector<std::pair<int, int>>& pairs, const Network& network,
    std::chrono::milliseconds deadline, const std::string& what) {
  std::optional<collectives::TcpFabric> fabric;
  // Of each process: an address and a key, of which the first one's is taken.
  const auto all = collectives::all_or_none(ranks.bootstrap, what + "addresses of the ranks", [&] {
    fabric.emplace(
        collectives::TcpOptions{network.interface, network.first_port, network.last_port});
    return fabric->address() + "\n" + random_key();
  });
  std::vector<std::string> address;
  for (const int process : ranks.process) {
    const std::string& text = all[std::size_t(process)];
    address.push_back(text.substr(0, text.find('\n')));
  }
  return fabric->connect(ranks.mine(), pairs, address,
                         key_bytes(all[0].substr(all[0].find('\n') + 1)), deadline,
                         [&] { ranks.bootstrap.throw_if_abandoned(); });
}

}  // namespace

std::vector<std::unique_ptr<collectives::Transport>> connect_hosts(
    const JobRanks& ranks, const collectives::StepPlan& plan, const Network& network,
    std::chrono::milliseconds deadline, const std::string& what) {
  const std::vector<int> mine = ranks.mine();
  if (ranks.one_host()) return std::vector<std::unique_ptr<collectives::Transport>>(mine.size());
  const auto pairs = pairs_of(mine, plan);
  if (transport_of(network) == "mpi") return ranks.bootstrap.transports(ranks.process, pairs, what);
  return connect_sockets(ranks, pairs, network, deadline, what);
}

}  // namespace lockstep::strategies
