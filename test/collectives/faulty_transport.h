// SPDX-License-Identifier: MIT
// Adds faults to any transport: messages are late, messages of different peers or tags overtake
// each other, and this end fails or goes silent at its k-th message. Messages between two ranks
// with one tag are still posted in order, as a transport guarantees. Faults are drawn from a seed.
// Like every transport, it serves one thread at a time.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/run/transport.h"

namespace lockstep::test {

struct TransportFaults {
  std::uint64_t seed = 0;
  // Each message is held back for up to this many polls (calls of `progress` or `test`). Each pair
  // and tag draws its own number, so messages overtake each other.
  int most_held_polls = 0;
  // Post number `fail_at` (from 0) throws Error(kPeerLost), and so does everything after it. Peers
  // are told, as by an end of file.
  int fail_at = -1;
  // From post number `silent_at` on, nothing is sent or received and no peer is told, as if the
  // host were unplugged.
  int silent_at = -1;
};

class FaultyTransport : public collectives::Transport {
 public:
  FaultyTransport(int rank, std::unique_ptr<collectives::Transport> inner, TransportFaults faults);
  int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) override;
  int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) override;
  bool test(int request) override;
  bool progress() override;
  void sleep(int microseconds) override;
  void send_control(int peer, ControlKind kind, int plan) noexcept override;
  std::optional<collectives::Transport::ControlMessage> receive_control() override;
  void abort(const engine::Error& why) noexcept override;

 private:
  using Line = std::tuple<int, int, bool>;  // peer, tag, whether it is a send
  struct Message {
    Line line;
    std::byte* target = nullptr;
    const std::byte* source = nullptr;
    std::size_t bytes = 0;
    int held = 0;      // polls left
    int inner = -1;    // the inner transport's request; -1: held back
    bool free = true;  // the number may be reused
  };
  int post(Message message);
  bool hand_over();
  void check() const;
  int draw();

  int rank_;
  std::unique_ptr<collectives::Transport> inner_;
  TransportFaults faults_;
  std::uint64_t drawn_ = 0;
  int posted_ = 0;
  bool failed_ = false, silent_ = false;
  std::vector<Message> messages_;
  std::map<Line, std::deque<int>> lines_;  // messages held back, in posting order
};

}  // namespace lockstep::test
