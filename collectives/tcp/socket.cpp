// SPDX-License-Identifier: MIT
#include "collectives/tcp/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives::tcp {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kTries = 100;  // ports that the system picks

void set(const Socket& socket, int level, int option, int value) {
  // A kernel without the option loses speed, not correctness.
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

Endpoint unix_endpoint(const std::string& path) {
  Endpoint found;
  auto* at = reinterpret_cast<sockaddr_un*>(&found.address);
  engine::require(!path.empty() && path.size() < sizeof at->sun_path,
                  "\"{}\" cannot be the path of a socket: it has at most {} characters", path,
                  sizeof at->sun_path - 1);
  at->sun_family = AF_UNIX;
  path.copy(at->sun_path, path.size());
  found.length = sizeof *at;
  found.text = path;
  return found;
}

// Listens at an endpoint. `again`: connections of an earlier listener that have its port do not
// count.
Socket listen_at(const Endpoint& at, bool again) {
  Socket socket(::socket(at.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  if (again) set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.file(), reinterpret_cast<const sockaddr*>(&at.address), at.length) != 0 ||
      listen(socket.file(), SOMAXCONN) != 0)
    return Socket();
  return socket;
}

// Listens at one port; 0: the system picks one. Returns nothing, with errno, if the port is not
// free on all addresses that exist, or if none exists.
std::vector<Socket> listen_at(const std::vector<std::string>& addresses, int port) {
  std::vector<Socket> sockets;
  const bool again = port != 0;
  for (const std::string& address : addresses) {
    Socket socket = listen_at(endpoint(address, port), again);
    if (!socket && errno == EADDRNOTAVAIL) continue;
    if (!socket) return {};
    port = port_of(socket);
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

std::string text_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(four.sin_port));
  }
  if (address.ss_family != AF_INET6) return {};
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
    inet_ntop(AF_INET, &six.sin6_addr.s6_addr[12], text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(six.sin6_port));
  }
  inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  return fmt::format("[{}]:{}", text.data(), ntohs(six.sin6_port));
}

// Returns the text of an endpoint. `name` is getsockname or getpeername.
template <class Name>
std::string endpoint_text(const Socket& socket, Name name) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  const bool known = name(socket.file(), reinterpret_cast<sockaddr*>(&address), &length) == 0;
  return known ? text_of(address) : std::string();
}

// Returns the text of an address, or nothing if others cannot reach this host by it.
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
  if (address.starts_with(kUnix)) return {unix_endpoint(address.substr(kUnix.size()))};
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

std::vector<std::string> local_addresses(const std::string& interface) {
  ifaddrs* list = nullptr;
  std::vector<std::string> four, six;
  std::set<std::string> known;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      known.insert(i->ifa_name);
      if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
      if (interface.empty() ? (i->ifa_flags & IFF_LOOPBACK) != 0 : interface != i->ifa_name)
        continue;
      const std::string text = usable(i->ifa_addr);
      if (!text.empty()) (i->ifa_addr->sa_family == AF_INET ? four : six).push_back(text);
    }
  }
  four.insert(four.end(), six.begin(), six.end());
  if (interface.empty() && four.empty()) four.emplace_back("127.0.0.1");
  engine::require(interface.empty() || known.contains(interface),
                  "there is no network interface '{}' on this host; there are: {}", interface,
                  fmt::join(known, ", "));
  engine::require(
      !four.empty(),
      "the network interface '{}' is down, or has no address that other hosts can reach",
      interface);
  return four;
}

std::vector<Socket> listen_on(const std::vector<std::string>& addresses, Ports ports) {
  std::vector<Socket> sockets;
  if (ports.first == 0) {
    for (int i = 0; i < kTries && sockets.empty(); ++i) sockets = listen_at(addresses, 0);
    if (sockets.empty())
      engine::fail(engine::Code::kIo, "cannot listen for other hosts: {}", std::strerror(errno));
    return sockets;
  }
  for (int port = ports.first; port <= ports.last && sockets.empty(); ++port)
    sockets = listen_at(addresses, port);
  if (sockets.empty())
    engine::fail(engine::Code::kIo,
                 "none of the ports {}-{} is free to listen for other hosts (the last one: {}); "
                 "each process of a host needs one while it connects",
                 ports.first, ports.last, std::strerror(errno));
  return sockets;
}

std::string local_endpoint(const Socket& socket) {
  return endpoint_text(socket, getsockname);
}

std::string remote_endpoint(const Socket& socket) {
  return endpoint_text(socket, getpeername);
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Does not set TCP_USER_TIMEOUT. That also ends a connection whose peer is alive but has not read
// for that long (measured: a closed window counts as silence). A rank that computes does not read.
// Connection::check_silence finds what keep-alive does not.
void tune(const Socket& socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace lockstep::collectives::tcp
