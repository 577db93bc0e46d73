// SPDX-License-Identifier: MIT
#include "test/collectives/faulty_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

namespace lockstep::test {

FaultyTransport::FaultyTransport(int rank, std::unique_ptr<collectives::Transport> inner,
                                 TransportFaults faults)
    : rank_(rank), inner_(std::move(inner)), faults_(faults) {}

void FaultyTransport::check() const {
  if (failed_)
    throw engine::Error(
        engine::Code::kPeerLost,
        fmt::format("rank {} is gone: cut off at its message {}", rank_, faults_.fail_at), {rank_});
}

// Draws from a new generator each time, so that the number depends only on seed, rank and message.
int FaultyTransport::draw() {
  if (faults_.most_held_polls <= 0) return 0;
  std::mt19937_64 generator((faults_.seed * 64 + std::uint64_t(rank_)) * 100003 + drawn_++);
  return int(generator() % std::uint64_t(faults_.most_held_polls + 1));
}

int FaultyTransport::post(Message message) {
  check();
  if (posted_ == faults_.silent_at) silent_ = true;
  if (posted_ == faults_.fail_at) {
    failed_ = true;
    inner_->abort({engine::Code::kPeerLost, fmt::format("rank {} is gone", rank_), {rank_}});
    check();
  }
  ++posted_;
  const auto found =
      std::find_if(messages_.begin(), messages_.end(), [](const Message& m) { return m.free; });
  const int number = int(found - messages_.begin());
  if (found == messages_.end()) messages_.emplace_back();
  message.free = false;
  message.held = draw();
  messages_[std::size_t(number)] = message;
  lines_[message.line].push_back(number);
  if (faults_.most_held_polls <= 0) hand_over();
  return number;
}

// Posts the messages at the front of each line whose delay is over. Returns whether there were any.
bool FaultyTransport::hand_over() {
  if (silent_) return false;
  bool moved = false;
  for (auto& [line, waiting] : lines_) {
    while (!waiting.empty()) {
      Message& m = messages_[std::size_t(waiting.front())];
      if (m.held > 0) {
        --m.held;
        break;
      }
      const auto [peer, tag, sent] = line;
      m.inner = sent ? inner_->post_send(peer, tag, m.source, m.bytes)
                     : inner_->post_receive(peer, tag, m.target, m.bytes);
      waiting.pop_front();
      moved = true;
    }
  }
  return moved;
}

int FaultyTransport::post_send(int peer, int tag, const std::byte* data, std::size_t bytes) {
  Message message;
  message.line = {peer, tag, true};
  message.source = data;
  message.bytes = bytes;
  return post(message);
}

int FaultyTransport::post_receive(int peer, int tag, std::byte* data, std::size_t bytes) {
  Message message;
  message.line = {peer, tag, false};
  message.target = data;
  message.bytes = bytes;
  return post(message);
}

bool FaultyTransport::test(int request) {
  check();
  if (silent_) return false;
  hand_over();
  Message& m = messages_[std::size_t(request)];
  if (m.inner < 0 || !inner_->test(m.inner)) return false;
  m = {};
  return true;
}

bool FaultyTransport::progress() {
  check();
  if (silent_) return false;
  const bool moved = hand_over();
  return inner_->progress() || moved;
}

void FaultyTransport::sleep(int microseconds) {
  if (failed_ || silent_)
    return std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  inner_->sleep(microseconds);
}

void FaultyTransport::send_control(int peer, ControlKind kind, int plan) noexcept {
  if (!failed_ && !silent_) inner_->send_control(peer, kind, plan);
}

std::optional<collectives::Transport::ControlMessage> FaultyTransport::receive_control() {
  if (failed_ || silent_) return {};
  return inner_->receive_control();
}

void FaultyTransport::abort(const engine::Error& why) noexcept {
  if (!failed_ && !silent_) inner_->abort(why);
}

}  // namespace lockstep::test
