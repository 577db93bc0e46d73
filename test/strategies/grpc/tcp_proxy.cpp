// SPDX-License-Identifier: MIT
#include "test/strategies/grpc/tcp_proxy.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "engine/base/error.h"

namespace lockstep::test {

using collectives::tcp::Socket;

namespace {

constexpr std::size_t kMostWaiting = 256 * 1024;

Socket connected(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(std::uint16_t(port));
  if (::connect(socket.file(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return Socket();
  return socket;
}

}  // namespace

TcpProxy::TcpProxy(int server_port)
    : server_port_(server_port),
      listener_(std::move(collectives::tcp::listen_on({"127.0.0.1"}, {}).at(0))),
      thread_([this] { run(); }) {}

TcpProxy::~TcpProxy() {
  end_ = true;
  thread_.join();
}

std::string TcpProxy::address() const {
  return fmt::format("127.0.0.1:{}", collectives::tcp::port_of(listener_));
}

void TcpProxy::cut() {
  const int mine = ++cuts_;
  while (cuts_done_ < mine) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void TcpProxy::run() {
  while (!end_) {
    if (const int wanted = cuts_; cuts_done_ < wanted) {
      pairs_.clear();
      cuts_done_ = wanted;
    }
    std::vector<pollfd> files;
    if (!silent_) {
      files.push_back({listener_.file(), POLLIN, 0});
      for (const Pair& pair : pairs_)
        for (const auto& [file, in, out] :
             {std::tuple{pair.client.file(), &pair.to_server, &pair.to_client},
              std::tuple{pair.server.file(), &pair.to_client, &pair.to_server}}) {
          const int wanted =
              (in->size() < kMostWaiting ? POLLIN : 0) | (out->empty() ? 0 : POLLOUT);
          files.push_back({file, short(wanted), 0});
        }
    }
    ::poll(files.data(), files.size(), 5);
    if (silent_ || files.empty()) continue;
    if ((files[0].revents & POLLIN) != 0) accept_one();
    for (Pair& pair : pairs_) forward(pair);
    pairs_.remove_if([](const Pair& pair) { return pair.ended; });
  }
}

void TcpProxy::accept_one() {
  Socket client(::accept4(listener_.file(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!client) return;
  Socket server = connected(server_port_);
  if (server) pairs_.push_back({std::move(client), std::move(server)});
}

void TcpProxy::forward(Pair& pair) {
  if (!move(pair.client.file(), pair.server.file(), pair.to_server, true) ||
      !move(pair.server.file(), pair.client.file(), pair.to_client, false))
    pair.ended = true;
}

// Moves available bytes in one direction. Returns false if either side has ended the connection.
bool TcpProxy::move(int from, int to, std::string& waiting, bool of_client) {
  char bytes[65536];
  if (waiting.size() < kMostWaiting && !silent_) {
    std::size_t most = sizeof(bytes);
    if (of_client) most = std::size_t(std::min<std::int64_t>(std::int64_t(most), left_));
    const ssize_t came = ::recv(from, bytes, most, MSG_DONTWAIT);
    if (came == 0 || (came < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return false;
    if (came > 0) {
      waiting.append(bytes, std::size_t(came));
      if (of_client) {
        from_clients_ += std::uint64_t(came);
        count_ += std::uint64_t(std::count(bytes, bytes + came, char(counted_)));
        if ((left_ -= came) == 0) {
          left_ = INT64_MAX;
          silent_ = true;
        }
      }
    }
  }
  if (waiting.empty() || silent_) return true;
  const ssize_t sent = ::send(to, waiting.data(), waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  waiting.erase(0, std::size_t(sent));
  return true;
}

}  // namespace lockstep::test
