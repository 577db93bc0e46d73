// SPDX-License-Identifier: MIT
#include "collectives/tcp/tcp_transport.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "collectives/tcp/rank_transport.h"
#include "collectives/tcp/rendezvous.h"
#include "collectives/tcp/socket.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

struct TcpFabric::State {
  std::vector<tcp::Socket> listeners;
  std::string address;
};

void require_possible(const TcpOptions& options) {
  const auto [interface, first, last] = options;
  engine::require((first == 0 && last == 0) || (first >= 1 && first <= last && last <= 65535),
                  "ports {}-{}: two numbers from 1 to 65535, the lower one first", first, last);
  if (!interface.empty()) tcp::local_addresses(interface);
}

TcpFabric::TcpFabric(const TcpOptions& options) {
  require_possible(options);
  const auto addresses = tcp::local_addresses(options.interface);
  const std::vector<std::string> all;
  state_ = std::make_unique<State>();
  state_->listeners = tcp::listen_on(options.interface.empty() ? all : addresses,
                                     {options.first_port, options.last_port});
  state_->address =
      fmt::format("{}:{}", fmt::join(addresses, ","), tcp::port_of(state_->listeners[0]));
}
TcpFabric::~TcpFabric() = default;

std::string TcpFabric::address() const {
  return state_->address;
}

std::vector<std::unique_ptr<Transport>> TcpFabric::connect(
    const std::vector<int>& ranks, const std::vector<std::pair<int, int>>& pairs,
    const std::vector<std::string>& address, const std::string& key,
    std::chrono::milliseconds deadline, const std::function<void()>& check) {
  engine::require(!state_->listeners.empty(), "a fabric connects once");
  for (const auto& pair : pairs) {
    engine::require(std::find(ranks.begin(), ranks.end(), pair.first) != ranks.end(),
                    "rank {} is none of this process", pair.first);
  }
  // Closed at the end, whatever comes.
  const std::vector<tcp::Socket> listeners = std::exchange(state_->listeners, {});
  std::vector<tcp::Met> met = tcp::meet(
      listeners,
      {.pairs = pairs, .address = address, .key = key, .deadline = deadline, .check = check});
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
