// SPDX-License-Identifier: MIT
// The ranks of a job time the all-reduces that may be the fastest by the topology's costs, at a few
// sizes, as often as a time allows. Pure functions; any thread.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/cost/calibration.h"
#include "collectives/cost/probes.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// Largest size on one host, where bytes alone set the limit from there on, and between hosts.
inline constexpr std::size_t kMostTriedOnHost = std::size_t(4) << 20;
inline constexpr std::size_t kMostTriedBetweenHosts = std::size_t(64) << 10;

// Returns, for each size up to `most` bytes, the trials of algorithms that take at most some times
// as long as the fastest. Until they are run their seconds are the simulated ones. What alone takes
// a good part of `seconds`, the time of all, is left out: between hosts bytes count there.
std::vector<Trial> planned_trials(const Topology& topology, double seconds,
                                  std::size_t most = kMostTriedOnHost);

// Returns a group for each size of `trials`. Each is run a few times at first; where `tried`, as
// often as its part of `seconds` allows by what it took. On one host they end after `seconds`.
std::vector<ProbeGroup> trial_groups(const Topology& topology, const std::vector<Trial>& trials,
                                     bool tried, double seconds);

// Returns the groups whose memory and connections suffice for all trials up to `most` bytes.
std::vector<ProbeGroup> largest_trials(const Topology& topology,
                                       std::size_t most = kMostTriedOnHost);

// Sets the seconds of each trial that was sampled.
void add_times(std::vector<Trial>& trials, const std::vector<Sample>& samples);

// Returns the trials whose samples other work disturbed, or which have too few: those of which no
// two of three parts, by time, agree.
std::vector<Trial> disturbed(const std::vector<Trial>& trials, const std::vector<Sample>& samples);

// Runs the topology's trials: first a few times each, which tells how often there is time for it,
// then so often, then those again that other work disturbed. Erases those that it disturbs twice.
// `run`: runs such groups and returns what all ranks measured.
using RunProbes = std::function<std::vector<Sample>(const std::vector<ProbeGroup>&)>;
void time_trials(Topology& topology, double seconds, const RunProbes& run);

}  // namespace lockstep::collectives
