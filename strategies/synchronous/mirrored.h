// SPDX-License-Identifier: MIT
// The devices of this process, a replica on each (a device may be given several times). Uses
// neither MPI nor sockets. Everything else is synchronous.h's.
#pragma once
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

// A base, so that it outlives the strategy that uses it.
struct OneProcess {
  std::unique_ptr<collectives::Bootstrap> one_process = collectives::single_process();
};

class Mirrored : private OneProcess, public Synchronous {
 public:
  explicit Mirrored(SynchronousOptions options) : Synchronous(std::move(options), *one_process) {}
  std::string name() const override { return "mirrored"; }
};

}  // namespace lockstep::strategies
