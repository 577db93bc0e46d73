// SPDX-License-Identifier: MIT
// "127.0.0.1:4711", "[::1]:4711", "host.example:4711": where a task is reached. Pure.
#pragma once
#include <string>

namespace lockstep::strategies::grpc {

struct HostPort {
  std::string host = {};  // without brackets
  int port = 0;
  std::string text() const;  // with brackets where it has colons
  bool loopback() const;     // reached from this host alone: 127.0.0.0/8, ::1, localhost
};

// Throws Error(kInvalid).
HostPort host_port(const std::string& address);

}  // namespace lockstep::strategies::grpc
