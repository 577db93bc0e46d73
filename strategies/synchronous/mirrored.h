// SPDX-License-Identifier: MIT
// Strategy for the devices of this process, one replica on each (a device may be repeated). Uses
// neither MPI nor sockets. synchronous.h describes the rest.
#pragma once
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

// Owns the bootstrap. It is a base class, so that it outlives the strategy that uses it.
struct OneProcess {
  std::unique_ptr<collectives::Bootstrap> one_process = collectives::single_process();
};

class Mirrored : private OneProcess, public Synchronous {
 public:
  explicit Mirrored(SynchronousOptions options) : Synchronous(std::move(options), *one_process) {}
  std::string name() const override { return "mirrored"; }
};

}  // namespace lockstep::strategies
