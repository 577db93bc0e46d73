// SPDX-License-Identifier: MIT
// Which all-reduces are tried while costs are measured, and how often: those of a few small sizes
// that may be the fastest by the costs found so far, as often as a time allows. Pure functions; any
// thread.
#pragma once
#include <vector>

#include "collectives/calibration.h"
#include "collectives/probes.h"
#include "collectives/topology.h"

namespace lockstep::collectives {

// Of every size those that take at most some times as long as the fastest; they took what was
// simulated, until they are tried. None that takes a good part of the time that all have: over so
// slow a wire bytes count, and not who sleeps.
std::vector<Trial> planned_trials(const Topology& topology, double seconds);

// For each size a group of the topology's trials: at first a few times each; where they were tried
// so, as often as the time allows by what they took.
std::vector<ProbeGroup> trial_groups(const Topology& topology, bool tried, double seconds);

// The memory and the connections that any of them could need.
std::vector<ProbeGroup> largest_trials(const Topology& topology);

// What they took, from the samples of those groups; without a sample it stays.
void add_times(std::vector<Trial>& trials, const std::vector<Sample>& samples);

}  // namespace lockstep::collectives
