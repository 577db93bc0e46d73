// SPDX-License-Identifier: MIT
#include "bench/tcp_rival.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::bench {

using collectives::tcp::Socket;

namespace {

struct Header {
  std::uint32_t push = 0, size = 0;
  std::uint64_t offset = 0;
};

bool send_all(int file, const void* data, std::size_t size) {
  for (auto* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t sent = ::send(file, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent, size -= std::size_t(sent);
  }
  return true;
}

bool receive_all(int file, void* data, std::size_t size) {
  for (auto* at = static_cast<char*>(data); size > 0;) {
    const ssize_t came = ::recv(file, at, size, 0);
    if (came < 0 && errno == EINTR) continue;
    if (came <= 0) return false;
    at += came, size -= std::size_t(came);
  }
  return true;
}

void require_sent(bool sent) {
  if (!sent) engine::fail(engine::Code::kIo, "the plain socket broke: {}", std::strerror(errno));
}

void no_delay(int file) {
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

TcpRivalServer::TcpRivalServer(std::span<const std::byte> weights)
    : weights_(weights),
      listener_(std::move(collectives::tcp::listen_on({"127.0.0.1"}, {}).at(0))),
      thread_([this] { run(); }) {}

TcpRivalServer::~TcpRivalServer() {
  ::shutdown(listener_.file(), SHUT_RDWR);
  thread_.join();
}

int TcpRivalServer::port() const {
  return collectives::tcp::port_of(listener_);
}

void TcpRivalServer::run() {
  for (;;) {
    pollfd waits{listener_.file(), POLLIN, 0};
    ::poll(&waits, 1, -1);
    const Socket client(::accept4(listener_.file(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return;
    if (client) serve(client.file());
  }
}

void TcpRivalServer::serve(int file) {
  no_delay(file);
  std::vector<std::byte> chunk;
  for (Header header; receive_all(file, &header, sizeof(header));) {
    if (header.offset > weights_.size() || header.size > weights_.size() - header.offset) return;
    bool fine = false;
    if (header.push != 0) {
      chunk.resize(std::max<std::size_t>(chunk.size(), header.size));
      const char taken = 1;
      fine = receive_all(file, chunk.data(), header.size) && send_all(file, &taken, 1);
    } else {
      fine = send_all(file, weights_.data() + header.offset, header.size);
    }
    if (!fine) return;
  }
}

TcpRivalClient::TcpRivalClient(int port)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(std::uint16_t(port));
  require_sent(
      ::connect(socket_.file(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  no_delay(socket_.file());
}

void TcpRivalClient::push(std::span<const std::byte> from, std::size_t chunk, std::size_t window) {
  std::size_t under_way = 0;
  const auto taken = [&] {
    char byte = 0;
    require_sent(receive_all(socket_.file(), &byte, 1));
    --under_way;
  };
  for (std::size_t at = 0; at < from.size(); at += chunk) {
    const std::size_t size = std::min(chunk, from.size() - at);
    const Header header{1, std::uint32_t(size), at};
    require_sent(send_all(socket_.file(), &header, sizeof(header)) &&
                 send_all(socket_.file(), from.data() + at, size));
    if (++under_way == window) taken();
  }
  while (under_way > 0) taken();
}

void TcpRivalClient::pull(std::span<std::byte> to, std::size_t chunk, std::size_t window) {
  std::size_t asked = 0;
  for (std::size_t at = 0; at < to.size(); at += chunk) {
    for (; asked < to.size() && asked < at + chunk * window; asked += chunk) {
      const Header header{0, std::uint32_t(std::min(chunk, to.size() - asked)), asked};
      require_sent(send_all(socket_.file(), &header, sizeof(header)));
    }
    require_sent(receive_all(socket_.file(), to.data() + at, std::min(chunk, to.size() - at)));
  }
}

}  // namespace lockstep::bench
