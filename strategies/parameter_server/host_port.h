// SPDX-License-Identifier: MIT
// Where a task listens: "node1:2222", "10.0.0.1:2222", "[::1]:2222". Pure; no name is looked up.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::strategies {

struct HostPort {
  std::string host = {};   // in small letters; of IPv6 without brackets
  std::uint16_t port = 0;  // 1 to 65535
  bool operator==(const HostPort&) const = default;
};

// Throws Error(kInvalid), one line that says what is wrong with the text and what would be right.
HostPort parse_host_port(std::string_view text);
std::string to_string(const HostPort& address);  // what parse_host_port reads back as the same

}  // namespace lockstep::strategies
