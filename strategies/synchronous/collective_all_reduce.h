// SPDX-License-Identifier: MIT
// Strategy for the processes of a job, on one or many hosts, each with one or more replicas. All
// processes make the strategy and call it in the same way. synchronous.h describes the rest.
#pragma once
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

class CollectiveAllReduce : public Synchronous {
 public:
  // The bootstrap must outlive the strategy. Collective: the processes discover each other here.
  CollectiveAllReduce(SynchronousOptions options, collectives::Bootstrap& bootstrap)
      : Synchronous(std::move(options), bootstrap) {}
  std::string name() const override { return "collective_all_reduce"; }
};

}  // namespace lockstep::strategies
