// SPDX-License-Identifier: MIT
// The address of a task: "node1:2222", "10.0.0.1:2222", "[::1]:2222". Pure; names are not resolved.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::strategies {

struct HostPort {
  std::string host = {};   // lower case; IPv6 without brackets
  std::uint16_t port = 0;  // 0: the server chooses one
  bool loopback() const;   // 127.0.0.0/8, ::1 or localhost
  bool operator==(const HostPort&) const = default;
};

// Requires a port of at least `least_port`. A server may pass kAnyPort, which allows port 0 for any
// free port. Throws Error(kInvalid) with one line that gives the fault and the valid form.
inline constexpr std::uint16_t kAnyPort = 0;
HostPort parse_host_port(std::string_view text, std::uint16_t least_port = 1);
std::string to_string(const HostPort& address);  // inverse of parse_host_port

}  // namespace lockstep::strategies
