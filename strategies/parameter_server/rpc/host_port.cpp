// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/host_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Accepts characters of host names and of IPv4 addresses.
bool in_name(char c) {
  return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_';
}

// Accepts characters of IPv6 addresses, with an interface's name after '%'.
bool in_colons(char c) {
  return in_name(c) || c == ':' || c == '%';
}

// Shortens a text for one line of an error and replaces characters that would break the line.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string result(text.substr(0, kMost));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return text.size() > kMost ? result + "..." : result;
}

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  engine::fail(engine::Code::kInvalid,
               "'{}' is no address: {}; write HOST:PORT, e.g. node1:2222 or [::1]:2222",
               shown(text), why);
}

}  // namespace

bool HostPort::loopback() const {
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

HostPort parse_host_port(std::string_view text, std::uint16_t least_port) {
  const std::size_t scheme = text.find("://");
  if (scheme != std::string_view::npos)
    refuse(text, fmt::format("leave out '{}'", shown(text.substr(0, scheme + 3))));
  const bool brackets = text.starts_with('[');
  const std::size_t colon = text.rfind(':');
  const std::size_t host_end = brackets ? text.rfind(']') : colon;
  if (brackets && host_end == std::string_view::npos) refuse(text, "its bracket is not closed");
  if (colon == std::string_view::npos || (brackets && colon < host_end))
    refuse(text, "it has no port");
  if (brackets && colon != host_end + 1) refuse(text, "its port does not follow the bracket");

  HostPort address;
  address.host = text.substr(brackets ? 1 : 0, host_end - (brackets ? 1 : 0));
  std::ranges::transform(address.host, address.host.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  if (address.host.empty()) refuse(text, "it has no host");
  if (!brackets && address.host.find(':') != std::string::npos)
    refuse(text, "a host with colons stands in brackets");
  if (brackets && std::ranges::count(address.host, ':') < 2)
    refuse(text, "what stands in brackets is no IPv6 address");
  if (!std::ranges::all_of(address.host, brackets ? in_colons : in_name))
    refuse(text, "its host has characters that no host has");

  const std::string_view port = text.substr(colon + 1);
  const char* end = port.data() + port.size();
  const auto [rest, error] = std::from_chars(port.data(), end, address.port);
  if (error != std::errc() || rest != end || address.port < least_port)
    refuse(text, fmt::format("its port is not a number from {} to 65535", least_port));
  return address;
}

std::string to_string(const HostPort& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", address.host, brackets ? "]" : "",
                     address.port);
}

}  // namespace lockstep::strategies
