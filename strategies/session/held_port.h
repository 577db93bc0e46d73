// SPDX-License-Identifier: MIT
// A port of this host that nobody else is given, kept for a server that has not been started yet,
// or that comes back: it may listen there all the same. Not for several threads at once.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::strategies {

class HeldPort {
 public:
  // One that is free. `loopback`: of 127.0.0.1 alone, else of all addresses. Throws Error(kIo).
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
