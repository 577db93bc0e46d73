// SPDX-License-Identifier: MIT
// Prices a plan: how long would it take on a machine of this topology? Discrete events, with the
// executor's meaning of every step: a rank has one thread, which does what is ready of its lanes,
// lowest lane first, messages before reductions. Shared are the processors and the memory (or the
// links of devices) of a host, by what runs there at one time; and a host's way out and way in, by
// its messages, one behind the other. All ranks begin at once.
//
// What is not modelled: a message leaves as soon as it is posted, whether or not it is awaited
// (socket buffers take it); hosts talk over a switch that is never full; nothing else runs.
//
// Pure; any thread. No libm, so that all processes of one program compute the same numbers. About a
// microsecond a step; memory in proportion to arrivals and messages.
#pragma once
#include <cstdint>
#include <vector>

#include "collectives/cost/host_load.h"
#include "collectives/plan/plan.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// One thing that a rank did, for pictures. A send: while its bytes leave.
struct Activity {
  int rank = 0, lane = 0, step = 0;
  Action action = Action::kReduce;
  double begin = 0, end = 0;  // s
};

struct Simulation {
  double seconds = 0;              // until the last rank has ended
  std::vector<double> ended = {};  // of each rank, s
  double wire_bytes = 0;           // that the host with most of them sends
  double memory_bytes = 0;         // likewise, read and written by reductions
  // The part of a host that is needed longest, and how long: were it free whenever it is wanted.
  HostPart part = HostPart::kMemory;
  double part_seconds = 0;
  double work_seconds = 0;  // likewise, of the thread of the rank with most to do
  // The most signals and messages of which each has to wait for the one before: how many, and how
  // long they take by themselves, without bytes.
  int rounds = 0;
  double round_seconds = 0;
  std::vector<Activity> activities = {};  // where asked for, in no order
};

struct SimulationOptions {
  // Bytes of the collective that decide how much of it is in caches; 0: those of the plan. For a
  // plan that is the reduced picture of a larger one.
  double bytes = 0;
  std::size_t slots = 1;  // numbers that an update keeps beside each weight: read and written
  bool record = false;    // the activities
};

// The plan is right in form, as the verifier says. Throws Error(kInvalid) where it is for other
// hosts than the topology's, and where some step waits for ever, naming rank, lane and step.
Simulation simulate(const Plan& plan, const Topology& topology,
                    const SimulationOptions& options = {});

}  // namespace lockstep::collectives
