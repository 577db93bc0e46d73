// SPDX-License-Identifier: MIT
#include "test/collectives/tcp/handshake_peer.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "engine/base/error.h"

namespace lockstep::collectives::tcp {

std::pair<Socket, Socket> socket_pair() {
  int files[2] = {-1, -1};
  engine::require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files) == 0,
                  "no pair of sockets");
  return {Socket(files[0]), Socket(files[1])};
}

std::pair<Socket, Socket> tcp_pair(const std::string& address) {
  const std::vector<Socket> listeners = listen_on({address}, {});
  const Endpoint to = endpoints(fmt::format("{}:{}", address, port_of(listeners[0])))[0];
  Socket from(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  engine::require(
      ::connect(from.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0,
      "no connection with {}", to.text);
  pollfd polled{.fd = listeners[0].file(), .events = POLLIN, .revents = 0};
  poll(&polled, 1, 10'000);
  Socket there(accept4(listeners[0].file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return {std::move(from), std::move(there)};
}

void send_text(const Socket& socket, const std::string& text) {
  ::send(socket.file(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string received(const Socket& socket) {
  std::string text(1 << 16, '\0');
  const auto got = ::recv(socket.file(), text.data(), text.size(), MSG_DONTWAIT);
  text.resize(got > 0 ? std::size_t(got) : 0);
  return text;
}

std::string read_text(const Socket& socket, std::size_t bytes) {
  std::string text;
  const auto end = engine::Clock::now() + std::chrono::seconds(10);
  while (text.size() < bytes && engine::Clock::now() < end) {
    pollfd polled{.fd = socket.file(), .events = POLLIN, .revents = 0};
    poll(&polled, 1, 1000);
    std::string more(bytes - text.size(), '\0');
    const auto got = ::recv(socket.file(), more.data(), more.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) break;
    if (got > 0) text += more.substr(0, std::size_t(got));
  }
  return text;
}

bool is_open(const Socket& socket) {
  char byte = 0;
  const auto got = ::recv(socket.file(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && errno == EAGAIN);
}

std::string proof(char role, const std::string& hello, const std::string& challenge,
                  const std::string& secret) {
  const std::string text = std::string(1, role) + hello + challenge;
  std::array<unsigned char, 32> digest{};
  unsigned length = 0;
  HMAC(EVP_sha256(), secret.data(), int(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &length);
  return {reinterpret_cast<const char*>(digest.data()), length};
}

}  // namespace lockstep::collectives::tcp
