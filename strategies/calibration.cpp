// SPDX-License-Identifier: MIT
#include "strategies/calibration.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/calibration.h"
#include "collectives/cost_cache.h"
#include "collectives/machine.h"
#include "collectives/probes.h"
#include "engine/base/error.h"
#include "strategies/probe_run.h"
#include "strategies/rank_processors.h"

namespace lockstep::strategies {
namespace {

using collectives::ProbeGroup;
using collectives::Sample;
using collectives::Topology;

// Costs of an executor that works otherwise are of no use: counted up when it does.
constexpr int kFormat = 2;

// Memory that all ranks of a host touch in the largest pass: so much more than the last cache that
// little of it stays there, and not so much that it takes long.
constexpr std::size_t kCaches = 6;
constexpr std::size_t kLeastTouched = std::size_t(64) << 20, kMostTouched = std::size_t(256) << 20;
// Of what a process could take.
constexpr std::size_t kShareOfMemory = 4;
constexpr std::size_t kPage = 4096;

// Bytes between hosts: four times as many as before, while the last ones took less than this.
constexpr std::size_t kFirstBulk = std::size_t(32) << 10, kLastBulk = std::size_t(8) << 20;
constexpr double kLongBulk = 12e-3;  // s
constexpr std::size_t kOften = std::size_t(512) << 10;

struct Passes {
  std::size_t bytes = 0;  // of a rank in the largest pass
  std::size_t ranks = 0;  // of the host with most
};

// Of all hosts the least bytes, so that all do the same.
Passes largest_passes(const JobRanks& ranks, std::size_t most_touched) {
  const std::size_t local = ranks.local().size(), mine = ranks.mine().size();
  const std::size_t touched = most_touched > 0 ? most_touched
                                               : std::clamp(kCaches * collectives::last_cache(),
                                                            kLeastTouched, kMostTouched);
  const std::size_t room = collectives::available_memory(local / mine) / kShareOfMemory / mine;
  const std::size_t each = std::min(touched / std::max<std::size_t>(local, 2), room);
  const auto all = ranks.bootstrap.all_gather(std::to_string(each), "memory for calibration");
  std::size_t least = each;
  for (const std::string& other : all) least = std::min(least, std::size_t(std::stoull(other)));
  Passes largest{std::max(least / kPage * kPage, kPage), 0};
  for (const int host : ranks.host)
    largest.ranks = std::max(largest.ranks,
                             std::size_t(std::count(ranks.host.begin(), ranks.host.end(), host)));
  return largest;
}

std::vector<Sample> measured(const JobRanks& ranks, const collectives::Binding& binding,
                             const engine::Ops& ops, const CalibrationOptions& options) {
  const Passes largest_pass = largest_passes(ranks, options.most_touched);
  std::vector<ProbeGroup> local{collectives::signal_probes(ranks.host)};
  for (const std::size_t bytes : collectives::pass_sizes(largest_pass.bytes, largest_pass.ranks))
    local.push_back(collectives::pass_probe(ranks.host, bytes));
  std::vector<ProbeGroup> largest = local;
  if (!ranks.one_host()) {
    largest.push_back(collectives::message_probes(ranks.host));
    largest.push_back(collectives::bulk_probe(ranks.host, kLastBulk, 1));
  }
  ProbeRun run(ranks, largest, ops, binding.processors, options.deadline, options.network);
  std::vector<Sample> samples = run.measure(local);
  if (ranks.one_host()) return samples;
  const auto add = [&](const ProbeGroup& group) {
    for (Sample& sample : run.measure({group})) samples.push_back(std::move(sample));
  };
  add(collectives::message_probes(ranks.host));
  std::vector<int> all(ranks.host.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = int(rank);
  for (std::size_t bytes = kFirstBulk; bytes <= kLastBulk; bytes *= 4) {
    add(collectives::bulk_probe(ranks.host, bytes, bytes <= kOften ? 6 : 3));
    if (usual_seconds(samples.back(), all) > kLongBulk) break;
  }
  return samples;
}

// Of each host, as its first process says.
std::vector<int> processors_of_hosts(const JobRanks& ranks, int here) {
  const auto all = ranks.bootstrap.all_gather(std::to_string(here), "processors for calibration");
  std::vector<int> processors;
  for (std::size_t rank = 0; rank < ranks.host.size(); ++rank)
    if (std::size_t(ranks.host[rank]) == processors.size())
      processors.push_back(std::stoi(all[std::size_t(ranks.process[rank])]));
  return processors;
}

std::string shape_of(const Topology& topology, const std::vector<int>& processors,
                     const CalibrationOptions& options) {
  const Network& network = options.network;
  return collectives::fingerprint(
      topology,
      fmt::format("lockstep {}, costs {}, transport {} {}, processors {}", options.version, kFormat,
                  transport_of(network), network.interface, fmt::join(processors, " ")));
}

}  // namespace

Calibration calibrate(collectives::Bootstrap& bootstrap, const Topology& topology,
                      const engine::Ops& ops, const CalibrationOptions& options) {
  const auto begin = engine::Clock::now();
  Calibration result;
  result.topology = topology;
  const JobRanks ranks = ranks_of(bootstrap, topology);
  const RankProcessors mine = processors_of_ranks(ranks, "processors for calibration");
  const std::vector<int> processors = processors_of_hosts(ranks, mine.of_host);

  const bool first = bootstrap.process() == 0;
  const std::string shape = shape_of(topology, processors, options);
  const collectives::CostCache cache(options.cache);
  std::string stored;
  if (first && !options.cache.empty() && !options.fresh) stored = cache.read(shape).value_or("");
  stored = bootstrap.all_gather(stored, "stored costs")[0];
  if (!stored.empty()) {
    try {
      result.topology = collectives::costs_from(stored, shape, topology);
      result.cached = true;
    } catch (const engine::Error& error) {  // the same on all processes
      if (first)
        result.note = fmt::format("{} is ignored, and its costs are measured anew: {}",
                                  cache.file(shape).string(), error.what());
    }
  }
  if (!result.cached) {
    result.topology =
        collectives::calibrated(topology, measured(ranks, mine.binding, ops, options), processors);
    if (first && !options.cache.empty()) {
      try {
        cache.write(shape, result.topology);
      } catch (const engine::Error& error) {
        result.note += (result.note.empty() ? "" : "; ") + std::string(error.what());
      }
    }
  }
  result.seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
  return result;
}

}  // namespace lockstep::strategies
