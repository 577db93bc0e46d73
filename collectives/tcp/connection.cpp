// SPDX-License-Identifier: MIT
#include "collectives/tcp/connection.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/error_bytes.h"

namespace lockstep::collectives::tcp {
namespace {

using engine::Clock;
using engine::Code;

constexpr std::uint32_t kMessage = 0x4d4b534c, kShutdown = 0x454b534c, kReason = 0x524b534c,
                        kQuestion = 0x414b534c, kAnswer = 0x484b534c;
constexpr std::size_t kMostControls = 8;
constexpr std::size_t kMostRead = std::size_t(4) << 20;  // per call, for fairness
constexpr std::chrono::milliseconds kSilence{5000};
// Bytes of a long message for which a sleeping thread wakes once. Each wake-up costs its core a
// switch and what the second-level cache held.
constexpr std::size_t kWorthWaking = std::size_t(2) << 20;

engine::Error no_message(const std::string& who) {
  return {Code::kIo, fmt::format("{} sent what is no message", who)};
}

}  // namespace

Connection::Connection(Socket socket, int peer, const std::string& host, std::size_t most_kept)
    : socket_(std::move(socket)),
      peer_(peer),
      who_(fmt::format("rank {} on host {}", peer, host)),
      most_kept_(most_kept) {}

Connection::~Connection() {
  if (failure_) return;
  if (!closed_ && !pending()) {  // else the peer sees no shutdown message
    const FrameHeader last{.magic = kShutdown};
    [[maybe_unused]] const auto sent = ::send(socket_.file(), &last, sizeof last, MSG_NOSIGNAL);
  }
  ::shutdown(socket_.file(), SHUT_WR);
  drain();
}

// Discards input: closing with unread bytes would reset the connection, and drop what the peer has
// not received. Returns false if nothing more can come.
bool Connection::drain() noexcept {
  std::array<std::byte, 4096> rest;
  for (int most = 1024; most > 0; --most) {
    const auto got = ::recv(socket_.file(), rest.data(), rest.size(), 0);
    if (got == 0) return false;
    if (got < 0 && errno != EINTR) return errno == EAGAIN || errno == EWOULDBLOCK;
  }
  return true;
}

// Sends only the queued message whose beginning the peer has already, since the peer could not tell
// the last frame from its rest.
void Connection::begin_abort(std::span<const std::byte> why) noexcept {
  if (failure_ || closed_) return;
  const bool begun = !sends_.empty() && sends_.front().sent > 0;
  sends_.erase(sends_.begin() + (begun ? 1 : 0), sends_.end());
  stalled_ = true;  // later input is ignored
  try {
    sends_.push_back({-1, {.magic = kReason, .tag = 0, .bytes = why.size()}, why.data()});
  } catch (const std::exception&) {  // no memory: the peer gets no reason
    shut();
  }
}

// Returns true until the peer's host has acknowledged all: what the peer sends after a close would
// also reset the connection. A peer that has ended itself needs no reason.
bool Connection::tells() noexcept {
  if (failure_ || closed_) return false;
  std::vector<int> through;
  try {
    write(through);
  } catch (const std::exception&) {  // the peer is lost
    return false;
  }
  int left = 0;
  const bool comes = drain();
  const bool got = sends_.empty() && (ioctl(socket_.file(), SIOCOUTQ, &left) != 0 || left == 0);
  if (!comes || got) shut();
  return !closed_;
}

void Connection::shut() noexcept {
  if (failure_ || closed_) return;
  sends_.clear();
  ::shutdown(socket_.file(), SHUT_WR);
  closed_ = true;
}

void Connection::rethrow() const {
  if (failure_) throw *failure_;
}

short Connection::events() const {
  return short((stalled_ ? 0 : POLLIN) | (sends_.empty() ? 0 : POLLOUT));
}

void Connection::fail_with(const engine::Error& error) {
  failure_ = error;
  throw *failure_;
}

void Connection::lose(const std::string& why) {
  fail_with(engine::Error(Code::kPeerLost, fmt::format("{} is gone ({})", who_, why), {peer_}));
}

void Connection::has_left() {
  fail_with(engine::Error(Code::kPeerLost,
                          fmt::format("{} has left before all was exchanged", who_), {peer_}));
}

void Connection::lose(int error) {
  switch (error) {
    case ECONNRESET:
    case EPIPE:
      lose("connection closed");
    case ETIMEDOUT:
      lose("silent: its host or the way to it is down");
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      lose(std::strerror(error));
    default:
      fail_with({Code::kIo, fmt::format("connection with {}: {}", who_, std::strerror(error))});
  }
}

void Connection::post_send(int request, int tag, const std::byte* data, std::size_t bytes,
                           std::vector<int>& through) {
  rethrow();
  if (closed_) has_left();
  sends_.push_back({request, {.magic = kMessage, .tag = std::uint32_t(tag), .bytes = bytes}, data});
  if (sends_.size() == 1) write(through);  // else the socket is full already
}

// Queues the message behind all others. The next call throws a failure.
void Connection::send_control(Transport::ControlKind kind, int plan,
                              std::vector<int>& through) noexcept {
  if (failure_ || closed_) return;
  const auto is_control = [](const Send& s) { return s.request < 0; };
  if (std::any_of(sends_.begin(), sends_.end(), is_control)) return;
  try {
    const std::uint32_t magic = kind == Transport::ControlKind::kQuestion ? kQuestion : kAnswer;
    sends_.push_back({-1, {.magic = magic, .tag = std::uint32_t(plan), .bytes = 0}, nullptr});
    if (sends_.size() == 1) write(through);
  } catch (const std::exception&) {  // peer lost (reported already), or no memory
  }
}

std::optional<std::pair<Transport::ControlKind, int>> Connection::receive_control() {
  if (controls_.empty()) return {};
  const auto control = controls_.front();
  controls_.erase(controls_.begin());
  return control;
}

// The oldest message with this tag may be there, may be arriving, or may be where reading stopped.
void Connection::post_receive(int request, int tag, std::byte* data, std::size_t bytes,
                              std::vector<int>& through) {
  rethrow();
  const auto same = [tag](const auto& m) { return m.tag == tag; };
  const bool first = std::none_of(posts_.begin(), posts_.end(), same);
  const auto kept = std::find_if(kept_.begin(), kept_.end(), same);
  if (kept != kept_.end()) {
    check_length(tag, kept->bytes, bytes);
    std::copy_n(kept->data.get(), bytes, data);
    kept_bytes_ -= kept->bytes;
    kept_.erase(kept);
    through.push_back(request);
    if (stalled_ && keep()) stalled_ = false;
    return;
  }
  if (incoming_ && !incoming_->reason && incoming_->request < 0 && incoming_->tag == tag) {
    Incoming& message = *incoming_;
    check_length(tag, message.bytes, bytes);
    std::copy_n(message.kept.get(), message.got, data);
    kept_bytes_ -= message.bytes;
    message.kept.reset();
    message.data = data;
    message.request = request;
    return;
  }
  if (closed_) has_left();
  posts_.push_back({request, tag, data, bytes});
  if (stalled_ && first && int(header_.tag) == tag) {
    stalled_ = false;
    begin(through);
    ask_for_wake();
  }
}

bool Connection::progress(bool readable, bool writable, std::vector<int>& through) {
  rethrow();
  if (closed_) return false;
  bool moved = false;
  if (writable && !sends_.empty()) moved |= write(through);
  if (readable) moved |= read(through);
  if (moved)
    was_silent_ = false;
  else if (pending())
    check_silence();
  return moved;
}

// Writes headers and contents of as many messages as fit one call, until the socket is full.
bool Connection::write(std::vector<int>& through) {
  bool moved = false;
  while (!sends_.empty()) {
    std::array<iovec, 32> parts;
    std::size_t count = 0, asked = 0;
    const auto add = [&](const void* from, std::size_t bytes) {
      if (bytes == 0) return;
      parts[count++] = {const_cast<void*>(from), bytes};  // sendmsg only reads
      asked += bytes;
    };
    for (const Send& s : sends_) {
      if (count + 2 > parts.size()) break;
      const std::size_t header = std::min(s.sent, sizeof s.header), data = s.sent - header;
      add(reinterpret_cast<const std::byte*>(&s.header) + header, sizeof s.header - header);
      add(s.data + data, s.header.bytes - data);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const auto sent = ::sendmsg(socket_.file(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      // The peer's last frame, perhaps its reason to stop, may still be unread.
      const int error = errno;
      while (!stalled_ && !closed_ && read(through)) {
      }
      lose(error);
    }
    moved = true;
    auto left = std::size_t(sent);
    std::size_t whole = 0;
    for (Send& s : sends_) {
      const std::size_t part = std::min(left, sizeof s.header + s.header.bytes - s.sent);
      s.sent += part;
      left -= part;
      if (s.sent < sizeof s.header + s.header.bytes) break;
      if (s.request >= 0) through.push_back(s.request);
      ++whole;
    }
    sends_.erase(sends_.begin(), sends_.begin() + std::ptrdiff_t(whole));
    if (std::size_t(sent) < asked) return true;
  }
  return moved;
}

bool Connection::read(std::vector<int>& through) {
  const bool moved = read_all(through);
  ask_for_wake();
  return moved;
}

// Sets when poll finds the socket readable. Either the rest of the current message or much of it is
// there, or nothing more comes, or the buffer is full. With less there is nothing to do.
void Connection::ask_for_wake() {
  const std::size_t left = incoming_ ? incoming_->bytes - incoming_->got : 1;
  const int bytes = int(std::clamp<std::size_t>(left, 1, kWorthWaking));
  if (bytes == wakes_at_) return;
  if (setsockopt(socket_.file(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) {
    wakes_at_ = bytes;
  }
}

// Reads the rest of the message and the next header in one call, until the socket is empty.
bool Connection::read_all(std::vector<int>& through) {
  bool moved = false;
  for (std::size_t total = 0; total < kMostRead && !closed_;) {
    if (stalled_) {  // reads nothing, but notices a reset
      std::byte one;
      const auto got = ::recv(socket_.file(), &one, 1, MSG_PEEK);
      if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) lose(errno);
      return moved;
    }
    std::array<iovec, 2> parts;
    std::size_t count = 0, asked = 0;
    if (incoming_) {
      asked = incoming_->bytes - incoming_->got;
      parts[count++] = {incoming_->data + incoming_->got, asked};
    }
    parts[count++] = {reinterpret_cast<std::byte*>(&header_) + header_got_,
                      sizeof header_ - header_got_};
    asked += sizeof header_ - header_got_;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const auto got = ::recvmsg(socket_.file(), &message, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      lose(errno);
    }
    if (got == 0) {
      const bool whole = shut_down_ && !incoming_ && header_got_ == 0;
      if (!whole) lose("connection closed");
      closed_ = true;
      if (pending()) has_left();
      return true;
    }
    moved = true;
    total += std::size_t(got);
    take(std::size_t(got), through);
    if (std::size_t(got) < asked) return true;
  }
  return moved;
}

// Assigns `bytes` that have been read to the message first, then to the next header.
void Connection::take(std::size_t bytes, std::vector<int>& through) {
  if (incoming_) {
    const std::size_t part = std::min(bytes, incoming_->bytes - incoming_->got);
    incoming_->got += part;
    bytes -= part;
    if (incoming_->got == incoming_->bytes) end(through);
  }
  header_got_ += bytes;
  if (header_got_ == sizeof header_) begin(through);
}

// Handles a complete header: decides where its message goes.
void Connection::begin(std::vector<int>& through) {
  header_got_ = 0;
  if (header_.magic == kShutdown && !shut_down_) {
    shut_down_ = true;
    return;
  }
  if (header_.magic == kReason && header_.bytes <= Transport::kMostReason && !shut_down_) {
    incoming_ = Incoming{.bytes = header_.bytes, .reason = true};
    incoming_->kept = std::make_unique_for_overwrite<std::byte[]>(header_.bytes + 1);
    incoming_->data = incoming_->kept.get();
    if (incoming_->bytes == 0) end(through);
    return;
  }
  if ((header_.magic == kQuestion || header_.magic == kAnswer) && header_.bytes == 0 &&
      !shut_down_) {
    if (controls_.size() == kMostControls) controls_.erase(controls_.begin());
    controls_.emplace_back(header_.magic == kQuestion ? Transport::ControlKind::kQuestion
                                                      : Transport::ControlKind::kAnswer,
                           int(header_.tag));
    return;
  }
  if (header_.magic != kMessage || shut_down_) fail_with(no_message(who_));
  const int tag = int(header_.tag);
  const auto post =
      std::find_if(posts_.begin(), posts_.end(), [tag](const Post& p) { return p.tag == tag; });
  if (post != posts_.end()) {
    check_length(tag, header_.bytes, post->bytes);
    incoming_ =
        Incoming{.tag = tag, .request = post->request, .data = post->data, .bytes = post->bytes};
    posts_.erase(post);
  } else if (!keep()) {
    stalled_ = true;
    return;
  }
  if (incoming_->bytes == 0) end(through);
}

// Allocates memory for the message of header_. Returns false if that exceeds the limit.
bool Connection::keep() {
  if (header_.bytes > most_kept_ - kept_bytes_) return false;
  incoming_ = Incoming{.tag = int(header_.tag), .bytes = header_.bytes};
  incoming_->kept = std::make_unique_for_overwrite<std::byte[]>(header_.bytes);
  incoming_->data = incoming_->kept.get();
  kept_bytes_ += header_.bytes;
  return true;
}

void Connection::end(std::vector<int>& through) {
  Incoming& message = *incoming_;
  if (message.reason) {
    const auto why = engine::read_error({message.kept.get(), message.bytes});
    fail_with(why ? *why : no_message(who_));
  }
  if (message.request >= 0)
    through.push_back(message.request);
  else
    kept_.push_back({message.tag, message.bytes, std::move(message.kept)});
  incoming_.reset();
}

void Connection::check_length(int tag, std::size_t sent, std::size_t posted) {
  if (sent == posted) return;
  fail_with({Code::kInvalid, fmt::format("message {} from {} has {} bytes, {} were expected", tag,
                                         who_, sent, posted)});
}

// Throws if the peer is silent. A live host acknowledges data, and answers when it is asked for
// room, even if its process does not read. Keep-alive notices silence only while no data is in
// flight; this notices the rest. It takes two findings in a row, since recent data has no answer
// yet.
void Connection::check_silence() {
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + std::chrono::milliseconds(500);
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(socket_.file(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  const bool unanswered = info.tcpi_unacked > 0 && info.tcpi_last_ack_recv > kSilence.count();
  const bool silent = unanswered || info.tcpi_probes > 3;
  if (silent && was_silent_) lose(ETIMEDOUT);
  was_silent_ = silent;
}

}  // namespace lockstep::collectives::tcp
