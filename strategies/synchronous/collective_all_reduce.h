// SPDX-License-Identifier: MIT
// The processes of a job, on one or many hosts, each with one or more replicas. All of them make
// the strategy and call it alike. Everything else is synchronous.h's.
#pragma once
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

class CollectiveAllReduce : public Synchronous {
 public:
  // The bootstrap outlives the strategy. Collective: processes learn of each other here.
  CollectiveAllReduce(SynchronousOptions options, collectives::Bootstrap& bootstrap)
      : Synchronous(std::move(options), bootstrap) {}
  std::string name() const override { return "collective_all_reduce"; }
};

}  // namespace lockstep::strategies
