// SPDX-License-Identifier: MIT
#include "collectives/tcp/tcp_transport.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/tcp/rank_transport.h"
#include "collectives/tcp/rendezvous.h"
#include "collectives/tcp/socket.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

struct TcpFabric::State {
  tcp::Socket listener = tcp::listen_anywhere();
  std::string address =
      fmt::format("{}:{}", fmt::join(tcp::local_addresses(), ","), tcp::port_of(listener));
};

TcpFabric::TcpFabric() : state_(std::make_unique<State>()) {}
TcpFabric::~TcpFabric() = default;

std::string TcpFabric::address() const {
  return state_->address;
}

std::vector<std::unique_ptr<Transport>> TcpFabric::connect(
    const std::vector<int>& ranks, const std::vector<std::pair<int, int>>& pairs,
    const std::vector<std::string>& address, const std::string& key,
    std::chrono::milliseconds deadline) {
  engine::require(bool(state_->listener), "a fabric connects once");
  for (const auto& pair : pairs) {
    engine::require(std::find(ranks.begin(), ranks.end(), pair.first) != ranks.end(),
                    "rank {} is none of this process", pair.first);
  }
  const tcp::Socket listener = std::move(state_->listener);  // closed at the end, whatever comes
  std::vector<tcp::Met> met =
      tcp::meet(listener, {.pairs = pairs, .address = address, .key = key, .deadline = deadline});
  std::vector<std::unique_ptr<Transport>> transports;
  for (const int rank : ranks) {
    std::vector<tcp::Met> mine;
    for (tcp::Met& one : met) {
      if (one.here == rank) mine.push_back(std::move(one));
    }
    transports.push_back(std::make_unique<tcp::RankTransport>(rank, std::move(mine)));
  }
  return transports;
}

}  // namespace lockstep::collectives
