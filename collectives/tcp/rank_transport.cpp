// SPDX-License-Identifier: MIT
#include "collectives/tcp/rank_transport.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/error_bytes.h"

namespace lockstep::collectives::tcp {
namespace {

// Time for the rest of half-sent messages when this rank stops, and for what the sockets hold.
constexpr std::chrono::milliseconds kFlushTime{500};
// Interval of polls: no socket says that the peer has received all.
constexpr std::chrono::milliseconds kBetweenPolls{2};

}  // namespace

RankTransport::RankTransport(int rank, std::vector<Met> peers)
    : rank_(rank), waker_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!waker_)
    engine::fail(engine::Code::kIo, "rank {}: no event to be woken by: {}", rank,
                 std::strerror(errno));
  for (Met& peer : peers) {
    auto [entry, added] = connections_.emplace(
        peer.there, std::make_unique<Connection>(std::move(peer.socket), peer.there, peer.host));
    engine::require(added, "rank {} has two connections with rank {}", rank, peer.there);
    order_.push_back(entry->second.get());
  }
  polled_.resize(order_.size() + 1);
  polled_.back() = {.fd = waker_.file(), .events = POLLIN, .revents = 0};
}

Connection& RankTransport::connection(int peer) {
  const auto found = connections_.find(peer);
  engine::require(found != connections_.end(), "rank {} has no connection with rank {}", rank_,
                  peer);
  return *found->second;
}

int RankTransport::add(Connection& connection) {
  if (free_.empty()) {
    free_.push_back(int(requests_.size()));
    requests_.emplace_back();
  }
  const int request = free_.back();
  free_.pop_back();
  requests_[std::size_t(request)] = {&connection, false};
  return request;
}

void RankTransport::mark() {
  for (const int request : through_) requests_[std::size_t(request)].through = true;
  through_.clear();
}

int RankTransport::post_send(int peer, int tag, const std::byte* data, std::size_t bytes) {
  Connection& to = connection(peer);
  fresh_ = false;
  const int request = add(to);
  to.post_send(request, tag, data, bytes, through_);
  mark();
  return request;
}

int RankTransport::post_receive(int peer, int tag, std::byte* data, std::size_t bytes) {
  Connection& from = connection(peer);
  fresh_ = false;
  const int request = add(from);
  from.post_receive(request, tag, data, bytes, through_);
  mark();
  return request;
}

bool RankTransport::test(int request) {
  engine::invariant(request >= 0 && std::size_t(request) < requests_.size() &&
                        requests_[std::size_t(request)].connection != nullptr,
                    "a request that was posted and not yet through");
  Request& r = requests_[std::size_t(request)];
  if (!r.through) {
    r.connection->rethrow();
    return false;
  }
  r.connection = nullptr;
  free_.push_back(request);
  return true;
}

int RankTransport::poll_all(int microseconds) {
  for (std::size_t i = 0; i < order_.size(); ++i) {
    polled_[i] = {.fd = order_[i]->file(), .events = order_[i]->events(), .revents = 0};
  }
  microseconds = std::max(microseconds, 0);
  const timespec time{microseconds / 1'000'000, long(microseconds % 1'000'000) * 1000};
  return ppoll(polled_.data(), polled_.size(), &time, nullptr);
}

// Uses what a sleep before it saw, without polling again. Without a sleep, it also reads what has
// arrived of a half-read message, although that would not end a sleep yet. So a caller that comes
// only now and then leaves no full buffer behind.
bool RankTransport::progress() {
  const bool slept = std::exchange(fresh_, false);
  if (!slept && poll_all(0) < 0) return false;
  bool moved = false;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const short events = polled_[i].revents;
    const bool more = !slept && order_[i]->reading();
    moved |= order_[i]->progress(more || (events & (POLLIN | POLLERR | POLLHUP)) != 0,
                                 (events & POLLOUT) != 0, through_);
    mark();
  }
  return moved;
}

void RankTransport::sleep(int microseconds) {
  fresh_ = poll_all(microseconds) >= 0;
  eventfd_t woken;
  if (fresh_ && polled_.back().revents != 0) eventfd_read(waker_.file(), &woken);
}

bool RankTransport::wake() noexcept {
  return eventfd_write(waker_.file(), 1) == 0 || errno == EAGAIN;  // or it is awake for long
}

void RankTransport::send_control(int peer, ControlKind kind, int plan) noexcept {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  fresh_ = false;
  found->second->send_control(kind, plan, through_);
  mark();
}

std::optional<Transport::ControlMessage> RankTransport::receive_control() {
  for (const auto& [peer, connection] : connections_)
    if (const auto control = connection->receive_control())
      return ControlMessage{peer, control->first, control->second};
  return {};
}

// Stops all connections together, so that many peers that do not read take no longer than one.
void RankTransport::abort(const engine::Error& why) noexcept {
  const auto end = engine::Clock::now() + kFlushTime;
  std::array<std::byte, kMostReason> memory;
  const auto reason = std::span<const std::byte>(memory).first(engine::write_error(why, memory));
  for (Connection* connection : order_) connection->begin_abort(reason);
  while (std::count_if(order_.begin(), order_.end(), [](Connection* c) { return c->tells(); }) >
         0) {
    if (engine::Clock::now() >= end) break;
    for (std::size_t i = 0; i < order_.size(); ++i)
      polled_[i] = {
          .fd = order_[i]->file(), .events = short(order_[i]->events() | POLLIN), .revents = 0};
    ::poll(polled_.data(), order_.size(), int(kBetweenPolls.count()));
  }
  for (Connection* connection : order_) connection->shut();
}

}  // namespace lockstep::collectives::tcp
