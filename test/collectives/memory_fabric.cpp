// SPDX-License-Identifier: MIT
#include "test/collectives/memory_fabric.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::Code;

struct MemoryPost {
  int from = 0, to = 0, tag = 0;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::size_t bytes = 0;
  bool done = false;
  std::string wrong = {};  // text of the error that `test` throws
};

// Holds the pending messages from one rank to another with one tag. They are posted and arrive in
// this order.
struct PostLine {
  std::deque<int> sends, receives;
  std::uint64_t delivered = 0;
  int held = -1;  // polls left before delivery; -1: not drawn
};

// Returns a well-mixed number (splitmix64, Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

struct MemoryFabric::State {
  using Key = std::array<int, 3>;  // from, to, tag
  State(int ranks, Faults f)
      : faults(f),
        sent(std::size_t(ranks)),
        posted(std::size_t(ranks)),
        told(std::size_t(ranks)),
        controls(std::size_t(ranks)) {}

  void check(int rank, int peer) {
    if (told[std::size_t(rank)]) throw *told[std::size_t(rank)];
    if (lost < 0) return;
    if (rank == lost)
      throw engine::Error(Code::kPeerLost, fmt::format("rank {} is lost: this is it", lost),
                          {lost});
    if (peer < 0 || peer == lost)
      throw engine::Error(Code::kPeerLost,
                          fmt::format("rank {} is lost, rank {} notices", lost, rank), {lost});
  }
  int add(int rank, MemoryPost post) {
    const int peer = post.from == rank ? post.to : post.from;
    engine::require(peer >= 0 && peer < int(sent.size()) && peer != rank,
                    "rank {} cannot talk to rank {} of {}", rank, peer, sent.size());
    if (rank == faults.lost_rank && posted[std::size_t(rank)] == faults.lost_at_message)
      lost = rank;
    check(rank, peer);
    if (const auto left = gone.find(peer); left != gone.end()) throw left->second;
    ++posted[std::size_t(rank)];
    int index = 0;
    if (free.empty()) {
      index = int(posts.size());
      posts.emplace_back();
    } else {
      index = free.back();
      free.pop_back();
    }
    const Key key{post.from, post.to, post.tag};
    PostLine& line = lines[key];
    (rank == post.from ? line.sends : line.receives).push_back(index);
    posts[std::size_t(index)] = std::move(post);
    deliver(key, line, false);
    return index;
  }
  // Tells the ranks with which `rank` has exchanged messages, or has begun to.
  void abort(int rank, const engine::Error& why) {
    for (const auto& [key, line] : lines) {
      if (key[0] != rank && key[1] != rank) continue;
      std::optional<engine::Error>& peer = told[std::size_t(key[0] == rank ? key[1] : key[0])];
      if (!peer) peer = why;
    }
    gone.emplace(rank, why);
  }
  // Returns for how many polls the next pair is held back. It depends only on the seed and the
  // message.
  int draw(const Key& key, std::uint64_t number) const {
    std::uint64_t x = mix(faults.seed);
    for (const int k : key) x = mix(x ^ std::uint64_t(k));
    x = mix(x ^ number);
    if (faults.most_delay_polls <= 0 || int(x % 10) >= faults.delayed_of_ten) return 0;
    return 1 + int(x / 10 % std::uint64_t(faults.most_delay_polls));
  }
  // Delivers all complete pairs of a line in order, unless one is held back. `poll`: the receiver
  // polls.
  bool deliver(const Key& key, PostLine& line, bool poll) {
    bool moved = false;
    while (!line.sends.empty() && !line.receives.empty()) {
      if (line.held < 0) line.held = draw(key, line.delivered);
      if (line.held > 0 && poll) --line.held, poll = false;
      if (line.held > 0) return moved;
      line.held = -1;
      MemoryPost& send = posts[std::size_t(line.sends.front())];
      MemoryPost& receive = posts[std::size_t(line.receives.front())];
      line.sends.pop_front(), line.receives.pop_front();
      ++line.delivered;
      send.done = receive.done = moved = true;
      if (send.bytes != receive.bytes) {
        send.wrong = receive.wrong =
            fmt::format("rank {} sends {} bytes with tag {}, and rank {} expects {}", key[0],
                        send.bytes, key[2], key[1], receive.bytes);
      } else if (send.bytes > 0) {
        std::memcpy(receive.target, send.source, send.bytes);
        ++messages;
        sent[std::size_t(key[0])] += send.bytes;
      }
    }
    return moved;
  }

  std::mutex mutex;  // protects all members
  Faults faults;
  int lost = -1;
  std::deque<MemoryPost> posts;
  std::vector<int> free;
  std::map<Key, PostLine> lines;
  std::size_t messages = 0;
  std::vector<std::size_t> sent;                                // bytes, by rank
  std::vector<int> posted;                                      // messages, by rank
  std::vector<std::optional<engine::Error>> told;               // why a peer stopped, by rank
  std::map<int, engine::Error> gone;                            // ranks that stopped, and why
  std::vector<std::deque<Transport::ControlMessage>> controls;  // not received yet, by rank
};

namespace {

template <class State>
class MemoryTransport : public Transport {
 public:
  MemoryTransport(State& state, int rank) : state_(state), rank_(rank) {}

  int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) override {
    std::scoped_lock lock(state_.mutex);
    MemoryPost post{rank_, peer, tag};
    post.source = data;
    post.bytes = bytes;
    return state_.add(rank_, std::move(post));
  }
  int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) override {
    std::scoped_lock lock(state_.mutex);
    MemoryPost post{peer, rank_, tag};
    post.target = data;
    post.bytes = bytes;
    return state_.add(rank_, std::move(post));
  }
  bool test(int request) override {
    std::scoped_lock lock(state_.mutex);
    MemoryPost& post = state_.posts[std::size_t(request)];
    state_.check(rank_, post.from == rank_ ? post.to : post.from);
    if (!post.done && post.to == rank_) {
      const typename State::Key key{post.from, post.to, post.tag};
      state_.deliver(key, state_.lines[key], true);
    }
    if (!post.done) return false;
    const std::string wrong = std::move(post.wrong);
    post = {};
    state_.free.push_back(request);
    engine::require(wrong.empty(), "{}", wrong);
    return true;
  }
  bool progress() override {
    std::scoped_lock lock(state_.mutex);
    state_.check(rank_, -1);
    bool moved = false;
    for (auto& [key, line] : state_.lines)
      if (key[1] == rank_) moved |= state_.deliver(key, line, true);
    return moved;
  }
  void sleep(int microseconds) override {
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }
  void send_control(int peer, ControlKind kind, int plan) noexcept override {
    std::scoped_lock lock(state_.mutex);
    if (state_.lost < 0) state_.controls[std::size_t(peer)].push_back({rank_, kind, plan});
  }
  std::optional<ControlMessage> receive_control() override {
    std::scoped_lock lock(state_.mutex);
    std::deque<ControlMessage>& received = state_.controls[std::size_t(rank_)];
    if (received.empty()) return {};
    const ControlMessage message = received.front();
    received.pop_front();
    return message;
  }
  void abort(const engine::Error& why) noexcept override {
    std::scoped_lock lock(state_.mutex);
    state_.abort(rank_, why);
  }

 private:
  State& state_;
  int rank_;
};

}  // namespace

MemoryFabric::MemoryFabric(int ranks, Faults faults)
    : state_(std::make_unique<State>(ranks, faults)) {}

MemoryFabric::~MemoryFabric() = default;

std::unique_ptr<Transport> MemoryFabric::connect(int rank) {
  return std::make_unique<MemoryTransport<State>>(*state_, rank);
}

std::size_t MemoryFabric::messages() const {
  std::scoped_lock lock(state_->mutex);
  return state_->messages;
}

std::size_t MemoryFabric::bytes_sent(int rank) const {
  std::scoped_lock lock(state_->mutex);
  return state_->sent[std::size_t(rank)];
}

void MemoryFabric::lose(int rank) {
  std::scoped_lock lock(state_->mutex);
  state_->lost = rank;
}

}  // namespace lockstep::collectives
