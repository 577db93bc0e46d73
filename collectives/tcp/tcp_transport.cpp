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

namespace {

// Returns "10.0.0.1" for "10.0.0.1:35012", and "fd00::1" for "[fd00::1]:35012".
std::string address_of(const tcp::Socket& listener) {
  const std::string endpoint = tcp::local_endpoint(listener);
  const std::string address = endpoint.substr(0, endpoint.rfind(':'));
  return address.starts_with('[') ? address.substr(1, address.size() - 2) : address;
}

}  // namespace

void require_possible(const TcpOptions& options) {
  const auto [interface, first, last] = options;
  engine::require((first == 0 && last == 0) || (first >= 1 && first <= last && last <= 65535),
                  "ports {}-{}: two numbers from 1 to 65535, the lower one first", first, last);
  if (!interface.empty()) tcp::local_addresses(interface);
}

TcpFabric::TcpFabric(const TcpOptions& options) {
  require_possible(options);
  state_ = std::make_unique<State>();
  state_->listeners = tcp::listen_on(tcp::local_addresses(options.interface),
                                     {options.first_port, options.last_port});
  std::vector<std::string> addresses;
  for (const tcp::Socket& listener : state_->listeners) addresses.push_back(address_of(listener));
  state_->address =
      fmt::format("{}:{}", fmt::join(addresses, ","), tcp::port_of(state_->listeners[0]));
}
TcpFabric::~TcpFabric() = default;

std::string TcpFabric::address() const {
  return state_->address;
}

std::vector<std::unique_ptr<Transport>> TcpFabric::connect(
    const std::vector<int>& ranks, const std::vector<std::pair<int, int>>& pairs,
    const std::vector<std::string>& address, const JobKey& key, std::chrono::milliseconds deadline,
    const std::function<void()>& check) {
  engine::require(!state_->listeners.empty(), "a fabric connects once");
  for (const auto& pair : pairs) {
    engine::require(std::find(ranks.begin(), ranks.end(), pair.first) != ranks.end(),
                    "rank {} is none of this process", pair.first);
  }
  // The listeners are closed at the end in any case.
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
