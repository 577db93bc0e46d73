// SPDX-License-Identifier: MIT
#include "collectives/tcp/names.h"

#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::collectives::tcp {
namespace {

using engine::Clock;
using engine::require;
using std::chrono::milliseconds;

constexpr milliseconds kAttempt{2000};  // to connect to one address
constexpr milliseconds kBetween{100};   // between rounds of attempts

// The answer of the resolver, which has no deadline: a thread of its own asks, and may outlive the
// question.
struct Resolution {
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  std::vector<std::string> addresses = {};
  std::string problem = {};
};

void resolve(const std::string& host, Resolution& answer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, [](addrinfo* one) {
    if (one != nullptr) freeaddrinfo(one);
  });
  const std::scoped_lock lock(answer.mutex);
  if (error != 0) answer.problem = gai_strerror(error);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0 &&
        std::strchr(text.data(), '%') == nullptr)
      answer.addresses.emplace_back(text.data());
  }
  answer.over = true;
  answer.ended.notify_all();
}

// Connects to one endpoint; empty on failure, with errno.
Socket try_endpoint(const Endpoint& to) {
  Socket socket(::socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  const auto* const address = reinterpret_cast<const sockaddr*>(&to.address);
  if (::connect(socket.file(), address, to.length) == 0) return socket;
  if (errno != EINPROGRESS) return Socket();
  pollfd polled{.fd = socket.file(), .events = POLLOUT, .revents = 0};
  int error = ETIMEDOUT;
  socklen_t length = sizeof error;
  if (::poll(&polled, 1, int(kAttempt.count())) > 0)
    getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0) return socket;
  errno = error;
  return Socket();
}

}  // namespace

HostAndPort host_and_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  HostAndPort found;
  bool ok = colon != std::string::npos && colon > 0;
  if (ok) {
    found.host = text.substr(0, colon);
    if (found.host.starts_with('[') && found.host.ends_with(']'))
      found.host = found.host.substr(1, found.host.size() - 2);
    const char* const end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + colon + 1, end, found.port);
    ok = error == std::errc() && last == end && found.port > 0 && found.port < 65536 &&
         !found.host.empty();
  }
  require(ok, "the rendezvous '{}' must be an address and a port, such as node1:29500", text);
  return found;
}

Resolved resolved(const std::string& text, Clock::time_point end) {
  if (text.starts_with("unix:")) return {text, {}};
  const HostAndPort at = host_and_port(text);
  const auto answer = std::make_shared<Resolution>();
  std::thread([host = at.host, answer] { resolve(host, *answer); }).detach();
  std::unique_lock lock(answer->mutex);
  if (!answer->ended.wait_until(lock, end, [&] { return answer->over; }))
    return {{}, fmt::format("{} does not resolve: no name server answers", at.host)};
  if (answer->addresses.empty())
    return {{}, fmt::format("{} does not resolve: {}", at.host, answer->problem)};
  return {fmt::format("{}:{}", fmt::join(answer->addresses, ","), at.port), {}};
}

Socket connect_to(const std::string& text, Clock::time_point end) {
  std::string problem;
  do {
    const Resolved found = resolved(text, end);
    problem = found.problem;
    if (!found.address.empty()) {
      for (const Endpoint& endpoint : endpoints(found.address)) {
        Socket socket = try_endpoint(endpoint);
        if (socket) return socket;
        problem = fmt::format("{}: {}", endpoint.text, std::strerror(errno));
      }
    }
    std::this_thread::sleep_for(kBetween);
  } while (Clock::now() < end);
  engine::fail(engine::Code::kTimeout, "no connection to {}: {}", text, problem);
}

}  // namespace lockstep::collectives::tcp
