// SPDX-License-Identifier: MIT
// Trials: the ranks of a job time the all-reduces that may be the fastest by the topology's costs.
// They do so at a few sizes, as often as a time limit allows. All functions are pure and
// thread-safe.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/cost/calibration.h"
#include "collectives/cost/probes.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// Largest trial sizes: on one host, where only bandwidth matters for larger ones, and between
// hosts.
inline constexpr std::size_t kMostTriedOnHost = std::size_t(4) << 20;
inline constexpr std::size_t kMostTriedBetweenHosts = std::size_t(64) << 10;

// Returns, for each size up to `most` bytes, the trials of algorithms that are within a small
// factor of the fastest. Until they run, their seconds are the simulated ones. A trial that alone
// takes a good part of `seconds`, the time of all trials, is left out: between hosts, bytes matter
// there.
std::vector<Trial> planned_trials(const Topology& topology, double seconds,
                                  std::size_t most = kMostTriedOnHost);

// Returns a group for each size of `trials`. Each trial first runs a few times. If `tried`, it runs
// as often as its part of `seconds` allows by its measured time. On one host they end after
// `seconds`.
std::vector<ProbeGroup> trial_groups(const Topology& topology, const std::vector<Trial>& trials,
                                     bool tried, double seconds);

// Returns the groups whose memory and connections suffice for all trials up to `most` bytes.
std::vector<ProbeGroup> largest_trials(const Topology& topology,
                                       std::size_t most = kMostTriedOnHost);

// Sets the seconds of each trial that was sampled.
void add_times(std::vector<Trial>& trials, const std::vector<Sample>& samples);

// Returns the trials with too few samples or with samples that other load disturbed: no two of
// three parts, by time, agree.
std::vector<Trial> disturbed(const std::vector<Trial>& trials, const std::vector<Sample>& samples);

// Runs the topology's trials: first a few times each, which tells how often there is time for; then
// that often; then the disturbed ones again. Erases those that are disturbed twice. `run`: runs
// such groups and returns the measurements of all ranks.
using RunProbes = std::function<std::vector<Sample>(const std::vector<ProbeGroup>&)>;
void time_trials(Topology& topology, double seconds, const RunProbes& run);

}  // namespace lockstep::collectives
