// SPDX-License-Identifier: MIT
#include "collectives/cost/trial_probes.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/cost/price.h"

namespace lockstep::collectives {
namespace {

constexpr std::size_t kSmallestTrial = std::size_t(1) << 10, kTrialGrowth = 4;
constexpr double kMayBeFastest = 4;  // times as long as the fastest
// Largest part of the time of all that one trial may take. On one host costs may only be assumed,
// and all sizes may be large.
constexpr double kMostOfAll = 0.1, kMostOnHost = 0.02;
constexpr int kFirstTries = 2, kMostTries = 300;  // repetitions: at first, at most
constexpr double kShortest = 1e-9;                // s; for a clock that is too coarse
// Barriers per repetition, and the time of writing numbers relative to that of their sum.
constexpr double kMeetingsOnHost = 3, kWritingPart = 0.5;
// Ratio below which parts of the samples agree.
constexpr double kAgree = 1.5;
// Parts of the time of all: for the first tries, and for repeating the disturbed ones.
constexpr double kFirstTime = 0.3, kRetried = 0.3;

std::vector<std::size_t> trial_sizes(const Topology& topology, std::size_t most) {
  if (topology.hosts.size() > 1) most = std::min(most, kMostTriedBetweenHosts);
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = kSmallestTrial; bytes <= most; bytes *= kTrialGrowth)
    sizes.push_back(bytes);
  return sizes;
}

// Returns the algorithms that have a plan of their own.
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
    // All ranks leave this barrier at nearly the same time, unlike a ring.
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

bool is_of(const Trial& trial, const Sample& sample) {
  return sample.probe.kind == Probe::Kind::kSum && sample.probe.size == trial.bytes &&
         sample.probe.algorithm == trial.algorithm;
}

// Returns null if there is none.
const Sample* sample_of(const Trial& trial, const std::vector<Sample>& samples) {
  const auto found = std::ranges::find_if(samples, [&](const Sample& sample) {
    return is_of(trial, sample) && !sample.seconds.empty();
  });
  return found == samples.end() ? nullptr : &*found;
}

std::vector<int> ranks_of_sample(const Sample& sample) {
  std::vector<int> all(sample.seconds[0].size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

std::vector<Trial> planned_trials(const Topology& topology, double seconds, std::size_t most) {
  std::vector<Trial> trials;
  if (topology.ranks.size() < 2) return trials;
  for (const std::size_t bytes : trial_sizes(topology, most)) {
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
  const double longest = (topology.hosts.size() > 1 ? kMostOfAll : kMostOnHost) * seconds;
  std::erase_if(trials, [&](const Trial& trial) {
    return trial.simulated <= 0 || trial.simulated > longest;
  });
  return trials;
}

// Gives each trial the same part of the time. Assumes that a barrier takes as long as the fastest
// trial.
std::vector<ProbeGroup> trial_groups(const Topology& topology, const std::vector<Trial>& trials,
                                     bool tried, double seconds) {
  const bool wire = topology.hosts.size() > 1;
  double meeting = std::numeric_limits<double>::infinity();
  for (const Trial& trial : trials) meeting = std::min(meeting, trial.seconds);
  std::map<std::size_t, std::vector<const Trial*>> by_size;
  for (const Trial& trial : trials) by_size[std::size_t(trial.bytes)].push_back(&trial);
  std::vector<ProbeGroup> groups;
  for (const auto& [bytes, of_size] : by_size) {
    std::vector<const Algorithm*> algorithms;
    for (const Trial* trial : of_size) algorithms.push_back(&find_algorithm(trial->algorithm));
    ProbeGroup& group = groups.emplace_back(group_of(topology, bytes, algorithms));
    if (!wire) group.seconds = seconds / double(by_size.size()), group.limit = seconds;
    for (std::size_t i = 0; i < of_size.size(); ++i) {
      const double each =
          wire ? meeting + of_size[i]->seconds
               : kMeetingsOnHost * meeting + (1 + kWritingPart) * of_size[i]->seconds;
      const double times = seconds / double(trials.size()) / each;
      group.probes[i].repetitions =
          tried ? int(std::clamp(times, double(kFirstTries), double(kMostTries))) : kFirstTries;
    }
  }
  return groups;
}

std::vector<ProbeGroup> largest_trials(const Topology& topology, std::size_t most) {
  std::vector<ProbeGroup> groups;
  if (topology.ranks.size() > 1)
    for (const std::size_t bytes : trial_sizes(topology, most))
      groups.push_back(group_of(topology, bytes, candidates(topology, bytes)));
  return groups;
}

void add_times(std::vector<Trial>& trials, const std::vector<Sample>& samples) {
  for (Trial& trial : trials)
    if (const Sample* sample = sample_of(trial, samples))
      trial.seconds = std::max(usual_seconds(*sample, ranks_of_sample(*sample)), kShortest);
}

std::vector<Trial> disturbed(const std::vector<Trial>& trials, const std::vector<Sample>& samples) {
  std::vector<Trial> found;
  for (const Trial& trial : trials) {
    const Sample* sample = sample_of(trial, samples);
    std::vector<double> parts;
    if (sample != nullptr) parts = part_medians(*sample, ranks_of_sample(*sample));
    std::sort(parts.begin(), parts.end());
    if (parts.size() < 2 || parts[1] > kAgree * std::max(parts[0], kShortest))
      found.push_back(trial);
  }
  return found;
}

void time_trials(Topology& topology, double seconds, const RunProbes& run) {
  std::vector<Sample> samples;
  std::vector<Trial> left = topology.trials;
  const auto measure = [&](bool tried, double part) {
    if (left.empty()) return;
    add_samples(samples, run(trial_groups(topology, left, tried, part * seconds)));
    add_times(topology.trials, samples);
    left = topology.trials;
  };
  measure(false, kFirstTime);
  measure(true, 1 - kFirstTime - kRetried);
  left = disturbed(topology.trials, samples);
  for (const Trial& trial : left)
    std::erase_if(samples, [&](const Sample& sample) { return is_of(trial, sample); });
  measure(true, kRetried);
  left = disturbed(topology.trials, samples);
  std::erase_if(topology.trials,
                [&](const Trial& trial) { return std::ranges::find(left, trial) != left.end(); });
  // Makes times monotone in bytes. Otherwise noise lets a prediction depend on the sizes planned.
  std::ranges::stable_sort(topology.trials, {}, &Trial::bytes);
  std::map<std::string_view, double> least;
  for (Trial& trial : topology.trials)
    trial.seconds = least[trial.algorithm] = std::max(least[trial.algorithm], trial.seconds);
}

}  // namespace lockstep::collectives
