// SPDX-License-Identifier: MIT
// A reserved port of this host. The system assigns it to no other program. A server that starts
// later, or again, can still listen on it. Not thread-safe.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::strategies {

class HeldPort {
 public:
  // Takes a free port. `loopback`: on 127.0.0.1 only, else on all addresses. Throws Error(kIo).
  explicit HeldPort(bool loopback);
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  std::uint16_t port() const { return port_; }

 private:
  int socket_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace lockstep::strategies
