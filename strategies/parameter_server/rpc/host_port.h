// SPDX-License-Identifier: MIT
// Where a task listens: "node1:2222", "10.0.0.1:2222", "[::1]:2222". Pure; no name is looked up.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::strategies {

struct HostPort {
  std::string host = {};   // in small letters; of IPv6 without brackets
  std::uint16_t port = 0;  // 0 where a server is to choose one
  bool loopback() const;   // reached from this host alone: 127.0.0.0/8, ::1, localhost
  bool operator==(const HostPort&) const = default;
};

// The port is at least `least_port`; who serves may be given kAnyPort, one that is free. Throws
// Error(kInvalid), one line that says what is wrong with the text and what would be right.
inline constexpr std::uint16_t kAnyPort = 0;
HostPort parse_host_port(std::string_view text, std::uint16_t least_port = 1);
std::string to_string(const HostPort& address);  // what parse_host_port reads back as the same

}  // namespace lockstep::strategies
