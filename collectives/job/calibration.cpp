// SPDX-License-Identifier: MIT
#include "collectives/job/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "collectives/bootstrap/outcome.h"
#include "collectives/cost/calibration.h"
#include "collectives/cost/cost_cache.h"
#include "collectives/cost/memory_access.h"
#include "collectives/cost/probes.h"
#include "collectives/cost/trial_probes.h"
#include "collectives/cost/wire_probes.h"
#include "collectives/job/probe_run.h"
#include "collectives/job/rank_processors.h"
#include "collectives/memory/mapped_memory.h"
#include "collectives/run/processor_wait.h"
#include "collectives/topology/example_topologies.h"
#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "engine/base/version.h"

namespace lockstep::collectives {
namespace {

// Increased when the executor changes, since older costs are of no use then. The fingerprint itself
// covers what is run and by which plans.
constexpr int kCostsVersion = 8;

// Memory that all ranks of a machine touch in the largest pass. It exceeds the last cache so far
// that little of it stays there, but takes neither long to allocate nor long to pass over.
constexpr std::size_t kCaches = 2;
constexpr std::size_t kLeastOfHost = std::size_t(64) << 20, kMostTouched = std::size_t(128) << 20;
// Limit for hosts that are parts of one machine and take turns on its processors. It holds even if
// a larger last cache has room for this memory.
constexpr std::size_t kTouchedTogether = std::size_t(64) << 20;
// Divisor of the memory that a process could allocate.
constexpr std::size_t kShareOfMemory = 4;

// Time limits of groups. Larger passes take longer and are repeated less often. A slower host does
// less, but it does the minimum however long that takes.
constexpr double kSignals = 15e-3, kLines = 20e-3, kSmallPasses = 15e-3, kMiddlePasses = 35e-3,
                 kLargestPasses = 75e-3, kSmallStores = 15e-3, kLargestStores = 40e-3,
                 kWireTime = 120e-3;  // s
// Factor of the time of trials on one host if ranks share processors.
constexpr double kShared = 3;
// Factor of the times within hosts if a wire is measured too.
constexpr double kPartBesideWire = 0.35;

struct Passes {
  std::size_t bytes = 0;  // per rank in the largest pass
  std::size_t ranks = 0;  // most ranks of a host
};

// Returns the bytes that the ranks of this host touch in the largest pass.
std::size_t touched_by_host(const CalibrationOptions& options, int hosts_of_machine) {
  if (options.most_touched > 0) return options.most_touched;
  if (hosts_of_machine > 1) return kTouchedTogether / std::size_t(hosts_of_machine);
  return std::clamp(kCaches * last_cache(), kLeastOfHost, kMostTouched);
}

// Returns the largest passes that fit all hosts, so that all hosts do the same.
Passes largest_passes(const JobRanks& ranks, std::size_t touched) {
  const std::size_t local = ranks.local().size(), mine = ranks.mine().size();
  const std::size_t room = available_memory(local / mine) / kShareOfMemory / mine;
  const std::size_t each = std::min(touched / std::max<std::size_t>(local, 2), room);
  const auto all = ranks.bootstrap.all_gather(std::to_string(each), "memory for calibration");
  std::size_t least = each;
  for (const std::string& other : all) least = std::min(least, std::size_t(std::stoull(other)));
  Passes largest{std::max(least / kPageBytes * kPageBytes, kPageBytes), 0};
  for (const int host : ranks.host)
    largest.ranks = std::max(largest.ranks,
                             std::size_t(std::count(ranks.host.begin(), ranks.host.end(), host)));
  return largest;
}

// Holds the probes within hosts. `first` decides how sums are done in `then`.
struct LocalProbes {
  std::vector<ProbeGroup> first, then;
};

// Returns the bytes per rank of the largest trial, within what the ranks of a host touch in passes.
std::size_t most_tried(const Passes& largest) {
  return std::min(kMostTriedOnHost, largest.bytes);
}

LocalProbes local_probes(const JobRanks& ranks, const Passes& largest_pass, int hosts_of_machine) {
  LocalProbes local{{signal_probes(ranks.host), line_probe(ranks.host)}, {}};
  local.first[0].seconds = kSignals;
  local.first[1].seconds = kLines;
  const auto sizes = pass_sizes(largest_pass.bytes, largest_pass.ranks);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ProbeGroup& group = local.then.emplace_back(pass_probe(ranks.host, sizes[i], hosts_of_machine));
    const std::size_t larger = sizes.size() - 1 - i;
    group.seconds = larger == 0 ? kLargestPasses : larger == 1 ? kMiddlePasses : kSmallPasses;
  }
  // All hosts do the same stores, as they do the same passes.
  const auto stores =
      store_probe_sizes(largest_pass.bytes * largest_pass.ranks, largest_pass.ranks);
  for (std::size_t i = 0; i < stores.size(); ++i) {
    ProbeGroup& group =
        local.then.emplace_back(store_probe(ranks.host, stores[i], hosts_of_machine));
    group.seconds = i + 1 == stores.size() ? kLargestStores : kSmallStores;
  }
  if (!ranks.one_host())
    for (auto* groups : {&local.first, &local.then})
      for (ProbeGroup& group : *groups) group.seconds *= kPartBesideWire;
  return local;
}

void add_note(std::string& note, const std::string& more) {
  note += (note.empty() ? "" : "; ") + more;
}

// Returns the processors of each host, as its first process reports them.
std::vector<int> processors_of_hosts(const JobRanks& ranks, int here) {
  const auto all = ranks.bootstrap.all_gather(std::to_string(here), "processors for calibration");
  std::vector<int> processors;
  for (std::size_t rank = 0; rank < ranks.host.size(); ++rank)
    if (std::size_t(ranks.host[rank]) == processors.size())
      processors.push_back(std::stoi(all[std::size_t(ranks.process[rank])]));
  return processors;
}

// Lets one process search for the costs and send them to all, since all would find the same.
// Processes that share processors would also slow each other down.
Topology costs_of_first(Bootstrap& bootstrap, Topology topology, const std::vector<Sample>& samples,
                        const std::vector<int>& processors, double trials, std::size_t most) {
  const auto all = all_or_none(bootstrap, "measured costs", [&] {
    if (bootstrap.process() != 0) return std::string();
    Topology measured = calibrated(topology, samples, processors);
    measured.trials = planned_trials(measured, trials, most);
    return to_json(measured);
  });
  const Topology found = topology_from_json(all[0]);
  for (std::size_t host = 0; host < topology.hosts.size(); ++host)
    topology.hosts[host].costs = found.hosts[host].costs;
  topology.wire = found.wire;
  topology.trials = found.trials;
  topology.costs_are = found.costs_are;
  return topology;
}

// Identifies a job, so that costs are kept for jobs like it.
struct JobIdentity {
  RankProcessors mine;
  std::vector<int> processors;  // one per host
  std::string fingerprint;
};

// Restores the job's memory access, which probes change.
class AccessOfJob {
 public:
  explicit AccessOfJob(Job& job) : job_(job), before_(job.access()) {}
  ~AccessOfJob() { job_.set_access(before_); }
  AccessOfJob(const AccessOfJob&) = delete;
  AccessOfJob& operator=(const AccessOfJob&) = delete;

 private:
  Job& job_;
  MemoryAccess before_;
};

// Holds measured costs. If ranks outnumber processors, they always wait for each other; that is no
// disturbance.
struct Measured {
  Topology topology;
  ProcessorWait wait = {};  // wait of the rank that waited longest
  bool disturbed = false;   // by other work
};

// Returns the memory access of the ranks while they are timed, as an executor of a step would use
// it.
MemoryAccess access_of(const JobRanks& ranks, const Topology& topology) {
  return memory_access(
      topology.hosts[std::size_t(ranks.host[std::size_t(ranks.mine().front())])].costs);
}

Measured tried(Job& job, const RankProcessors& mine, const Topology& topology,
               const engine::Ops& ops, const CalibrationOptions& options) {
  const JobRanks& ranks = job.ranks();
  const std::size_t most =
      most_tried(largest_passes(ranks, touched_by_host(options, mine.hosts_of_machine)));
  const double seconds = options.trials * (mine.enough ? 1 : kShared);
  Measured result{topology};
  // Ranks take longer if other work has their processors, like ranks that share processors.
  for (const double time : {seconds, options.trials * (kShared - 1)}) {
    ProbeRun run(job, largest_trials(topology, most), ops, mine.binding.processors, options.waited);
    job.set_access(access_of(ranks, topology));
    result.topology.trials = planned_trials(topology, time, most);
    time_trials(result.topology, time, [&](const auto& groups) { return run.measure(groups); });
    result.wait = run.processor_wait();
    // In so short a time, the least wait that counts elsewhere would be most of it.
    result.disturbed = mine.enough && result.wait.part() > result.wait.kPart;
    if (!result.disturbed) break;
  }
  return result;
}

// Measures costs within hosts, then the wire, and then sums with the costs that follow from both.
Measured measured(Job& job, const JobIdentity& identity, const Topology& topology,
                  const engine::Ops& ops, const CalibrationOptions& options) {
  const JobRanks& ranks = job.ranks();
  const RankProcessors& mine = identity.mine;
  const Passes largest_pass =
      largest_passes(ranks, touched_by_host(options, mine.hosts_of_machine));
  const LocalProbes local = local_probes(ranks, largest_pass, mine.hosts_of_machine);
  std::vector<ProbeGroup> largest = local.first;
  largest.insert(largest.end(), local.then.begin(), local.then.end());
  std::optional<WireProbes> wire;
  if (!ranks.one_host()) {
    wire.emplace(ranks.host, kWireTime);
    largest.push_back(wire->largest());
  }
  const std::size_t most = most_tried(largest_pass);
  for (ProbeGroup& group : largest_trials(topology, most)) largest.push_back(std::move(group));
  ProbeRun run(job, largest, ops, mine.binding.processors, options.waited);
  job.set_access({});
  std::vector<Sample> samples = run.measure(local.first);
  job.set_access({.read_ahead = better_read_ahead(samples, ranks.local())});
  add_samples(samples, run.measure(local.then));
  while (wire) {
    const auto group = wire->next(samples);
    if (!group) break;
    add_samples(samples, run.measure({*group}));
  }
  const double seconds = options.trials * (ranks.one_host() && !mine.enough ? kShared : 1);
  Topology found =
      costs_of_first(ranks.bootstrap, topology, samples, identity.processors, seconds, most);
  job.set_access(access_of(ranks, found));
  time_trials(found, seconds, [&](const auto& groups) { return run.measure(groups); });
  const ProcessorWait wait = run.processor_wait();
  return {std::move(found), wait, mine.enough && wait.disturbed()};
}

// Tells the user once if measuring takes long.
class SlowNotice {
 public:
  explicit SlowNotice(const CalibrationOptions& options)
      : thread_([this, &options](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          over_.wait_for(lock, stop, options.notice_after, [] { return false; });
          if (stop.stop_requested()) return;
          options.tell(
              fmt::format("costs of ranks and links are still being measured after {:g} s{}",
                          std::chrono::duration<double>(options.notice_after).count(),
                          options.trials_alone ? "" : ", as over slow wires"));
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any over_;
  std::jthread thread_;  // last: it uses the others
};

std::string disturbed_note(const ProcessorWait& wait, bool would_be_kept) {
  return fmt::format(
      "the machine is busy with other work: while costs of ranks and links were measured a rank "
      "waited {:.0f} % of the time for a processor; what was measured is used{}",
      100 * wait.part(), would_be_kept ? ", but not kept: the next job measures anew" : "");
}

// Returns a hash of the probes that any machine runs, as for a few ranks.
std::uint64_t hash_of_probes() {
  constexpr std::size_t kBytes = std::size_t(64) << 10;
  std::vector<ProbeGroup> all;
  for (const int hosts : {1, 2}) {
    const Topology few = equal_hosts(hosts, 2, {}, {});
    const std::vector<int> host = few.host_of_rank();
    all.push_back(signal_probes(host));
    all.push_back(line_probe(host));
    for (const std::size_t bytes : pass_sizes(kBytes, 2)) all.push_back(pass_probe(host, bytes));
    for (const std::size_t bytes : store_probe_sizes(kBytes, 2))
      all.push_back(store_probe(host, bytes));
    if (hosts > 1) all.push_back(WireProbes(host, kWireTime).largest());
    for (ProbeGroup& group : largest_trials(few)) all.push_back(std::move(group));
  }
  return hash(all);
}

// Returns the fingerprint of a job. `interfaces`: one per process, which may differ.
std::string host_fingerprint(const Topology& topology, const std::vector<int>& processors,
                             const std::vector<std::string>& interfaces, const Network& network) {
  return fingerprint(
      topology,
      fmt::format("lockstep {}, costs {}, probes {:016x}, transport {} {}, processors {}",
                  engine::version(), kCostsVersion, hash_of_probes(), transport_of(network),
                  fmt::join(interfaces, " "), fmt::join(processors, " ")));
}

JobIdentity identity_of(const Job& job, const Topology& topology) {
  const JobRanks& ranks = job.ranks();
  engine::invariant(topology.host_of_rank() == ranks.host, "costs of the ranks of another job");
  RankProcessors mine = processors_of_ranks(ranks, "processors for calibration");
  std::vector<int> processors = processors_of_hosts(ranks, mine.of_host);
  const auto interfaces =
      job.bootstrap().all_gather(job.network().interface, "interfaces for calibration");
  std::string fingerprint = host_fingerprint(topology, processors, interfaces, job.network());
  return {std::move(mine), std::move(processors), std::move(fingerprint)};
}

// Reads the costs from the first process's file. `trials_suffice`: accepts trials without measured
// costs. `instead`: what is done if the file is of no use.
Calibration stored_by_first(Bootstrap& bootstrap, const Topology& topology,
                            const std::string& fingerprint, const CalibrationOptions& options,
                            bool trials_suffice, const char* instead) {
  Calibration result;
  result.topology = topology;
  const bool first = bootstrap.process() == 0;
  const CostCache cache(options.cache);
  std::string text;
  if (first && !options.cache.empty() && !options.fresh)
    text = cache.read(fingerprint).value_or("");
  text = bootstrap.all_gather(text, "stored costs")[0];
  if (text.empty()) return result;
  try {
    Topology found = costs_from(text, fingerprint, topology);
    result.cached = trials_suffice || found.costs_are == "measured";
    if (result.cached) result.topology = std::move(found);
    if (result.cached && first) result.written = cache.written(fingerprint);
  } catch (const engine::Error& error) {  // on all processes, which have the same fingerprint
    if (first)
      result.note = fmt::format("{} is ignored, and {}: {}", cache.file(fingerprint).string(),
                                instead, error.what());
  }
  return result;
}

}  // namespace

Calibration stored_costs(Job& job, const Topology& topology, const CalibrationOptions& options) {
  const auto begin = engine::Clock::now();
  const std::string fingerprint = identity_of(job, topology).fingerprint;
  Calibration result =
      stored_by_first(job.bootstrap(), topology, fingerprint, options, true, "costs are assumed");
  result.seconds = engine::seconds_since(begin);
  return result;
}

Calibration calibrate(Job& job, const Topology& topology, const engine::Ops& ops,
                      const CalibrationOptions& options) {
  const auto begin = engine::Clock::now();
  Bootstrap& bootstrap = job.bootstrap();
  const JobIdentity identity = identity_of(job, topology);
  Calibration result = stored_by_first(bootstrap, topology, identity.fingerprint, options,
                                       options.trials_alone, "its costs are measured anew");
  if (!result.cached) {
    const bool first = bootstrap.process() == 0;
    std::optional<SlowNotice> notice;
    if (first && options.tell) notice.emplace(options);
    const AccessOfJob access(job);
    Measured found = options.trials_alone ? tried(job, identity.mine, topology, ops, options)
                                          : measured(job, identity, topology, ops, options);
    result.topology = std::move(found.topology);
    notice.reset();
    result.disturbed = found.disturbed;
    if (first && found.disturbed) {
      // A start on one host reports it only in its explanation, since little is lost.
      if (!options.trials_alone)
        add_note(result.note, disturbed_note(found.wait, !options.cache.empty()));
    } else if (first && !options.cache.empty() &&
               !(options.trials_alone && result.topology.trials.empty())) {
      try {
        CostCache(options.cache).write(identity.fingerprint, result.topology);
        result.kept = true;
      } catch (const engine::Error& error) {
        add_note(result.note, error.what());
      }
    }
    result.kept = bootstrap.all_gather(result.kept ? "kept" : "", "costs kept")[0] == "kept";
  }
  result.seconds = engine::seconds_since(begin);
  return result;
}

}  // namespace lockstep::collectives
