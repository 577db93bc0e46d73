// SPDX-License-Identifier: MIT
#include "collectives/tcp/control_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::collectives::tcp {

ControlLink::ControlLink(Socket socket, std::string host, std::size_t most)
    : socket_(std::move(socket)), host_(std::move(host)), most_(most) {}

void ControlLink::send(Kind kind, std::uint32_t what, std::string_view bytes) {
  if (!sending()) out_.clear(), sent_ = 0;
  const Head head{kMagic, std::uint32_t(kind), what, std::uint32_t(bytes.size())};
  out_.append(reinterpret_cast<const char*>(&head), sizeof head);
  out_.append(bytes);
}

bool ControlLink::progress() {
  if (open_) {
    const bool wrote = write_out();
    open_ = read_in() && wrote;  // who has left may have told why
  }
  return open_ || whole();
}

bool ControlLink::write_out() {
  while (sending()) {
    const ssize_t written =
        ::send(socket_.file(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += std::size_t(written);
  }
  return true;
}

bool ControlLink::read_in() {
  constexpr std::size_t kPiece = std::size_t(64) << 10;
  std::array<char, kPiece> piece;
  for (;;) {
    if (whole()) return true;  // the caller takes it first
    const std::optional<Head> next = head();
    if (next && (next->magic != kMagic || next->bytes > most_)) return false;
    const ssize_t got = ::recv(socket_.file(), piece.data(), piece.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    in_.append(piece.data(), std::size_t(got));
  }
}

std::optional<ControlLink::Head> ControlLink::head() const {
  if (in_.size() < sizeof(Head)) return {};
  Head head{};
  std::memcpy(&head, in_.data(), sizeof head);
  return head;
}

bool ControlLink::whole() const {
  const std::optional<Head> next = head();
  return next && next->magic == kMagic && next->bytes <= most_ &&
         in_.size() >= sizeof(Head) + next->bytes;
}

std::optional<ControlLink::Frame> ControlLink::receive() {
  if (!whole()) return {};
  const std::optional<Head> next = head();
  Frame frame{Kind(next->kind), next->what, in_.substr(sizeof(Head), next->bytes)};
  in_.erase(0, sizeof(Head) + next->bytes);
  return frame;
}

}  // namespace lockstep::collectives::tcp
