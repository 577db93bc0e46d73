// SPDX-License-Identifier: MIT
#include "collectives/trial_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "collectives/algorithms.h"
#include "collectives/price.h"
#include "collectives/registry.h"

namespace lockstep::collectives {
namespace {

constexpr std::array<std::size_t, 3> kTrialSizes{512, std::size_t(4) << 10, std::size_t(32) << 10};
constexpr double kMayBeFastest = 4;               // times as long as the fastest
constexpr double kMostOfAll = 0.1;                // of the time of all, that one may take once
constexpr int kFirstTries = 2, kMostTries = 300;  // repetitions at first, and then
constexpr double kShortest = 1e-9;                // s: of a clock that is too coarse

// That have a plan of their own.
std::vector<const Algorithm*> candidates(const Topology& topology, std::size_t bytes) {
  std::vector<const Algorithm*> found;
  const Request request = priced_request(topology, bytes);
  for (const Algorithm& algorithm : all_reduce_algorithms()) {
    if (!algorithm.refusal(request.host).empty()) continue;
    if (algorithm.same != nullptr && !algorithm.same(request).empty()) continue;
    found.push_back(&algorithm);
  }
  return found;
}

ProbeGroup group_of(const Topology& topology, std::size_t bytes,
                    const std::vector<const Algorithm*>& algorithms) {
  const Request request = priced_request(topology, bytes);
  ProbeGroup made{.name = fmt::format("sums of {} bytes", bytes)};
  made.elements = request.subject.size();
  made.wire = topology.hosts.size() > 1;
  made.writes = !made.wire;
  if (made.wire) {
    // All ranks meet, and leave it at nearly the same time, as from no ring.
    const Request meeting = priced_request(topology, sizeof(float));
    made.step.push_back({halving_doubling_all_reduce(meeting), {}, false});
    made.scratch = halving_doubling_scratch(meeting);
  } else {
    made.step.push_back({probe_plan({Probe::Kind::kRounds, 1, 1}, request.host), {}, false});
  }
  for (const Algorithm* algorithm : algorithms) {
    made.probes.push_back(
        {.kind = Probe::Kind::kSum, .size = double(bytes), .algorithm = algorithm->name});
    made.step.push_back({algorithm->make(request), {}, false});
    made.scratch = std::max(made.scratch, algorithm->scratch(request));
  }
  return made;
}

}  // namespace

std::vector<Trial> planned_trials(const Topology& topology, double seconds) {
  std::vector<Trial> trials;
  if (topology.ranks.size() < 2) return trials;
  for (const std::size_t bytes : kTrialSizes) {
    std::vector<Trial> of_size;
    double least = std::numeric_limits<double>::infinity();
    for (const Algorithm* algorithm : candidates(topology, bytes)) {
      const double simulated = price(*algorithm, topology, bytes).seconds;
      least = std::min(least, simulated);
      of_size.push_back({std::string(algorithm->name), double(bytes), simulated, simulated});
    }
    std::erase_if(of_size,
                  [&](const Trial& trial) { return trial.simulated > kMayBeFastest * least; });
    trials.insert(trials.end(), of_size.begin(), of_size.end());
  }
  std::erase_if(trials, [&](const Trial& trial) {
    return trial.simulated <= 0 || trial.simulated > kMostOfAll * seconds;
  });
  return trials;
}

// Each has the same part of the time. A meeting is taken to be as long as the fastest.
std::vector<ProbeGroup> trial_groups(const Topology& topology, bool tried, double seconds) {
  double meeting = std::numeric_limits<double>::infinity();
  for (const Trial& trial : topology.trials) meeting = std::min(meeting, trial.seconds);
  std::vector<ProbeGroup> groups;
  for (const std::size_t bytes : kTrialSizes) {
    std::vector<const Algorithm*> algorithms;
    std::vector<int> repetitions;
    for (const Trial& trial : topology.trials) {
      if (trial.bytes != double(bytes)) continue;
      algorithms.push_back(&find_algorithm(trial.algorithm));
      const double times =
          seconds / double(topology.trials.size()) / (meeting + trial.seconds) - kFirstTries;
      repetitions.push_back(tried ? int(std::clamp(times, 1.0, double(kMostTries))) : kFirstTries);
    }
    if (algorithms.empty()) continue;
    groups.push_back(group_of(topology, bytes, algorithms));
    if (!groups.back().wire) groups.back().seconds = seconds / double(kTrialSizes.size());
    for (std::size_t i = 0; i < repetitions.size(); ++i)
      groups.back().probes[i].repetitions = repetitions[i];
  }
  return groups;
}

std::vector<ProbeGroup> largest_trials(const Topology& topology) {
  std::vector<ProbeGroup> groups;
  if (topology.ranks.size() > 1)
    for (const std::size_t bytes : kTrialSizes)
      groups.push_back(group_of(topology, bytes, candidates(topology, bytes)));
  return groups;
}

void add_times(std::vector<Trial>& trials, const std::vector<Sample>& samples) {
  for (Trial& trial : trials)
    for (const Sample& sample : samples) {
      if (sample.probe.kind != Probe::Kind::kSum || sample.probe.size != trial.bytes ||
          sample.probe.algorithm != trial.algorithm || sample.seconds.empty())
        continue;
      std::vector<int> all(sample.seconds[0].size());
      std::iota(all.begin(), all.end(), 0);
      trial.seconds = std::max(usual_seconds(sample, all), kShortest);
    }
}

}  // namespace lockstep::collectives
