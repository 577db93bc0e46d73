// SPDX-License-Identifier: MIT
// Simulator: predicts how long a plan takes on a machine of this topology. It simulates discrete
// events with the executor's meaning of every step. A rank has one thread, which runs what is ready
// in its lanes: lowest lane first, messages before reductions. What runs on a host at one time
// shares its processors and memory, or the links of its devices. The messages of a host share its
// outgoing and incoming link, one after the other. All ranks begin at once.
//
// The model simplifies: a message leaves when it is posted, whether or not it is awaited (socket
// buffers take it). Hosts communicate over a switch that is never full. Nothing else runs.
//
// Pure and thread-safe. It uses no libm, so that all processes of a program compute the same
// numbers. It takes about a microsecond per step, and memory in proportion to arrivals and
// messages.
#pragma once
#include <cstdint>
#include <vector>

#include "collectives/cost/host_load.h"
#include "collectives/plan/plan.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// Records one action of a rank, for plots. A send lasts while its bytes leave.
struct Activity {
  int rank = 0, lane = 0, step = 0;
  Action action = Action::kReduce;
  double begin = 0, end = 0;  // s
};

struct Simulation {
  double seconds = 0;              // until the last rank has ended
  std::vector<double> ended = {};  // s, per rank
  double wire_bytes = 0;           // sent by the host with the most
  double memory_bytes = 0;         // likewise, read and written by reductions
  // Part of a host that is needed longest, and its time if it were free whenever it is needed.
  HostPart part = HostPart::kMemory;
  double part_seconds = 0;
  double work_seconds = 0;  // likewise, of the busiest rank's thread
  // Longest chain of signals and messages that wait for each other: their number, and their time
  // without bytes.
  int rounds = 0;
  double round_seconds = 0;
  std::vector<Activity> activities = {};  // if requested; unordered
};

struct SimulationOptions {
  // Bytes of the collective, which decide how much of it is in caches; 0: those of the plan. Set it
  // for a plan that represents a larger one.
  double bytes = 0;
  std::size_t slots = 1;  // optimizer slots per weight, read and written
  bool record = false;    // record the activities
};

// Simulates a plan that the verifier accepts as well formed. Throws Error(kInvalid) if the plan is
// for other hosts than the topology's. It also throws if a step waits forever, and names rank, lane
// and step.
Simulation simulate(const Plan& plan, const Topology& topology,
                    const SimulationOptions& options = {});

}  // namespace lockstep::collectives
