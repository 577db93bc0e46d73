// SPDX-License-Identifier: MIT
#include "strategies/grpc/host_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"

namespace lockstep::strategies::grpc {

namespace {

constexpr int kMostPort = 65535;

[[noreturn]] void fail_address(const std::string& address) {
  engine::fail(engine::Code::kInvalid,
               "'{}' is no address: a host and a port are, say 127.0.0.1:4711 or [::1]:4711",
               address);
}

}  // namespace

std::string HostPort::text() const {
  const bool colons = host.find(':') != std::string::npos;
  return colons ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool HostPort::loopback() const {
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

HostPort host_port(const std::string& address) {
  HostPort result;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) fail_address(address);
  result.host = address.substr(0, colon);
  const bool brackets =
      result.host.size() > 2 && result.host.front() == '[' && result.host.back() == ']';
  if (brackets) result.host = result.host.substr(1, result.host.size() - 2);
  if (result.host.empty() || (result.host.find(':') != std::string::npos) != brackets)
    fail_address(address);
  const bool strange = std::any_of(result.host.begin(), result.host.end(), [](char c) {
    return c <= ' ' || c > '~' || c == '/' || c == '[' || c == ']' || c == '%';
  });
  if (strange) fail_address(address);
  const char* end = address.data() + address.size();
  const auto [read, error] = std::from_chars(address.data() + colon + 1, end, result.port);
  if (error != std::errc() || read != end || result.port < 0 || result.port > kMostPort)
    fail_address(address);
  return result;
}

}  // namespace lockstep::strategies::grpc
