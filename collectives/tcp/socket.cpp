// SPDX-License-Identifier: MIT
#include "collectives/tcp/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives::tcp {
namespace {

constexpr int kBacklog = 128;

void set(const Socket& socket, int level, int option, int value) {
  // A kernel without the option is worse off, not wrong.
  [[maybe_unused]] const int ignored =
      setsockopt(socket.file(), level, option, &value, sizeof value);
}

Endpoint endpoint(const std::string& host, int port) {
  Endpoint found;
  auto* four = reinterpret_cast<sockaddr_in*>(&found.address);
  auto* six = reinterpret_cast<sockaddr_in6*>(&found.address);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(std::uint16_t(port));
    found.length = sizeof *four;
    found.text = fmt::format("{}:{}", host, port);
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(std::uint16_t(port));
    found.length = sizeof *six;
    found.text = fmt::format("[{}]:{}", host, port);
  }
  return found;
}

Socket listen_on(const sockaddr* address, socklen_t length) {
  Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  if (address->sa_family == AF_INET6) set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.file(), address, length) != 0 || listen(socket.file(), kBacklog) != 0)
    return Socket();
  return socket;
}

// Empty where others cannot reach this host under it.
std::string usable(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(),
              text.size());
  } else if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return {};  // means nothing without an interface
    inet_ntop(AF_INET6, &six->sin6_addr, text.data(), text.size());
  }
  return text.data();
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

Socket::~Socket() {
  if (file_ >= 0) ::close(file_);
}

std::vector<Endpoint> endpoints(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  int port = 0;
  bool ok = colon != std::string::npos;
  if (ok) {
    const char* const end = address.data() + address.size();
    const auto [last, error] = std::from_chars(address.data() + colon + 1, end, port);
    ok = error == std::errc() && last == end && port > 0 && port < 65536;
  }
  std::vector<Endpoint> all;
  for (std::size_t at = 0; ok && at <= colon;) {
    const std::size_t comma = std::min(address.find(',', at), colon);
    all.push_back(endpoint(address.substr(at, comma - at), port));
    ok = all.back().length > 0;
    at = comma + 1;
  }
  engine::require(ok, "\"{}\" is no address: \"10.0.0.1,fd00::1:35012\" would be one", address);
  return all;
}

std::vector<std::string> local_addresses() {
  ifaddrs* list = nullptr;
  std::vector<std::string> four, six;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0 ||
          (i->ifa_flags & IFF_LOOPBACK) != 0)
        continue;
      const std::string text = usable(i->ifa_addr);
      if (!text.empty()) (i->ifa_addr->sa_family == AF_INET ? four : six).push_back(text);
    }
  }
  four.insert(four.end(), six.begin(), six.end());
  if (four.empty()) four.emplace_back("127.0.0.1");
  return four;
}

Socket listen_anywhere() {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  Socket socket = listen_on(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (!socket) {  // a host without IPv6
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_ANY);
    socket = listen_on(reinterpret_cast<const sockaddr*>(&four), sizeof four);
  }
  if (!socket)
    engine::fail(engine::Code::kIo, "cannot listen for other hosts: {}", std::strerror(errno));
  return socket;
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// No TCP_USER_TIMEOUT: it also ends a connection whose peer is alive but has not read for that long
// (measured: a closed window counts as silence), and a rank that computes does not read.
// Connection::check_silence looks for what keep-alive does not see.
void tune(const Socket& socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace lockstep::collectives::tcp
