// SPDX-License-Identifier: MIT
// What one algorithm would cost for one size on a topology, as a sum or as a sum with the
// optimizer's update inside. Pure; any thread.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>

#include "collectives/algorithms/registry.h"
#include "collectives/cost/simulator.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

struct Price {
  double seconds = 0;
  // By the costs alone it takes at least as long as each of these: a host's wire for its bytes; the
  // part of a host that is needed longest; the thread of the rank with most to do; the signals and
  // messages that come one after the other.
  double wire_seconds = 0, part_seconds = 0, work_seconds = 0, round_seconds = 0;
  HostPart part = HostPart::kMemory;
  double wire_bytes = 0, memory_bytes = 0;  // of the host with most
  double rounds = 0;
  double messages = 0;   // between hosts, of all ranks
  bool reduced = false;  // from smaller pictures of the cluster
  double trial = 1;      // trial_factor, in `seconds` alone
};

// a + part (b - a), of everything.
Price along(const Price& a, const Price& b, double part);

// The sum of float32 that is priced: its numbers, and all of it.
Range priced_subject(std::size_t bytes);
Request priced_request(const Topology& topology, std::size_t bytes);

inline constexpr int kExactHosts = 8;
inline constexpr double kExactSteps = 100'000;

struct PriceOptions {
  // With the update inside (Request::update), of an algorithm that has a place for it.
  bool update = false;
  std::size_t slots = 1;  // of an update, inside or alone: what it keeps beside each weight
  std::optional<DType> wire = {};  // Request::wire
  double exact_steps = kExactSteps;
  // Planner: called before each price with how many are found, and how many this process finds.
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

// Of priced_request, with the update inside where that is asked for. Exactly simulated where the
// cluster has at most kExactHosts hosts, and where the plan has less than `exact_steps` (in the
// second way below, less than four times as many). Else from smaller pictures, of the first 2, 4 or
// 8 hosts, in one of two ways. A cluster of unequal hosts is pictured as if all were like its
// slowest one.
// - Where the steps of a rank grow with the number of hosts, as in a ring, 4 and 8 hosts are
//   simulated with as many bytes for each host as there would be. Then a rank does in each round
//   what it would do, and there are more rounds the more hosts there are: so the line through both
//   times is followed to the cluster's number of hosts.
// - Where they grow with its logarithm, as in halving-doubling, 2, 4 and 8 hosts are simulated with
//   all the bytes. Then messages are as large as they would be. With H hosts the time is a + b log2
//   H + c / H: b is that of a round, c / H is what the last rounds leave of the bytes.
// It takes no less than any of its parts, which are found in the same way.
// Throws what the algorithm throws, and Error(kInvalid) for a plan that waits for ever.
Price price(const Algorithm& algorithm, const Topology& topology, std::size_t bytes,
            const PriceOptions& options = {});

}  // namespace lockstep::collectives
