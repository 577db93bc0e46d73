// SPDX-License-Identifier: MIT
// Predicted time of one algorithm for one size on a topology, as a sum or with the optimizer's
// update fused. Pure and thread-safe.
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
  // Lower bounds by costs alone: a host's wire for its bytes; the part of a host that is needed
  // longest; the thread of the busiest rank; the longest chain of signals and messages.
  double wire_seconds = 0, part_seconds = 0, work_seconds = 0, round_seconds = 0;
  HostPart part = HostPart::kMemory;
  double wire_bytes = 0, memory_bytes = 0;  // maximum over hosts
  double rounds = 0;
  double messages = 0;   // between hosts, of all ranks
  bool reduced = false;  // extrapolated from smaller clusters
  double trial = 1;      // trial_factor; included in `seconds` only
};

// Returns a + part (b - a) for every number.
Price along(const Price& a, const Price& b, double part);

// Returns the range of a float32 sum of `bytes`. `priced_request` returns the whole request.
Range priced_subject(std::size_t bytes);
Request priced_request(const Topology& topology, std::size_t bytes);

inline constexpr int kExactHosts = 8;
inline constexpr double kExactSteps = 100'000;

struct PriceOptions {
  // If true, the update is fused (Request::update); the algorithm must support that.
  bool update = false;
  std::size_t slots = 1;           // optimizer slots per weight, fused or separate
  std::optional<DType> wire = {};  // Request::wire
  double exact_steps = kExactSteps;
  // The planner calls it before each prediction with the number done and the total of this process.
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

// Predicts the time of priced_request, with the update fused if asked for. The simulation is exact
// if the cluster has at most kExactHosts hosts, or the plan has less than `exact_steps` steps. (The
// second case below allows four times as many.) Else the time is extrapolated from the first 2, 4
// or 8 hosts. A cluster of unequal hosts is simulated as if all were like its slowest one.
// - If a rank's steps grow with the number of hosts, as in a ring, 4 and 8 hosts are simulated with
//   the cluster's bytes per host. Then a rank does in each round what it would do in the cluster,
//   and the number of rounds grows with the hosts. The line through both times is extrapolated to
//   the cluster's number of hosts.
// - If they grow with its logarithm, as in halving-doubling, 2, 4 and 8 hosts are simulated with
//   all the bytes. Then messages are as large as in the cluster. With H hosts the time is
//   a + b log2 H + c / H: b is the time of a round, c / H is what the last rounds leave of the
//   bytes.
// The result is not below any of its lower bounds, which are found in the same way. Throws what the
// algorithm throws, and Error(kInvalid) for a plan that waits forever.
Price price(const Algorithm& algorithm, const Topology& topology, std::size_t bytes,
            const PriceOptions& options = {});

}  // namespace lockstep::collectives
