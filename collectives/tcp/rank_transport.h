// SPDX-License-Identifier: MIT
// The transport of one rank over its connections. One thread at a time, except for `wake`. Only
// `sleep` and `abort` block.
#pragma once
#include <poll.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/run/transport.h"
#include "collectives/tcp/connection.h"
#include "collectives/tcp/rendezvous.h"

namespace lockstep::collectives::tcp {

class RankTransport : public Transport {
 public:
  RankTransport(int rank, std::vector<Met> peers);
  int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) override;
  int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) override;
  bool test(int request) override;
  bool progress() override;
  void sleep(int microseconds) override;
  bool wake() noexcept override;
  void send_control(int peer, ControlKind kind, int plan) noexcept override;
  std::optional<ControlMessage> receive_control() override;
  // Waits up to half a second, for all peers together, until their hosts have received it.
  void abort(const engine::Error& why) noexcept override;

 private:
  struct Request {
    Connection* connection = nullptr;  // null: the number is free
    bool through = false;
  };
  Connection& connection(int peer);
  int add(Connection& connection);
  void mark();
  int poll_all(int microseconds);

  int rank_;
  std::map<int, std::unique_ptr<Connection>> connections_;  // by peer
  std::vector<Connection*> order_;                          // in the order of polled_
  Socket waker_;                                            // an event, last in polled_
  std::vector<pollfd> polled_;
  bool fresh_ = false;  // polled_ is from the last sleep, still valid
  std::vector<Request> requests_;
  std::vector<int> free_, through_;
};

}  // namespace lockstep::collectives::tcp
