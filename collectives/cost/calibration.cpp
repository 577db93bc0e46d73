// SPDX-License-Identifier: MIT
// Finds costs one after the other, each by a probe that depends only on it and on costs found
// before. The simulator predicts the probe's time for a cost. Bisection finds the cost for which
// the prediction equals the measurement. So no formula of the simulator is duplicated here.
#include "collectives/cost/calibration.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "collectives/cost/memory_access.h"
#include "collectives/cost/simulator.h"
#include "engine/base/median.h"

namespace lockstep::collectives {
namespace {

using Kind = Probe::Kind;

// Bytes between hosts from which on their time hides whether a rank was asleep.
constexpr double kManyBytes = 128 << 10;
constexpr int kHalvings = 36;  // bisections: 1 s to below 0.1 ns
constexpr int kRoots = 24;     // geometric bisections: to a millionth
// Part of a time that bytes must take before their bandwidth is searched.
constexpr double kVisible = 0.15;
// If the fastest fetching takes this part of a measured time, or more, the rest is noise and does
// not tell the bandwidth of fetching.
constexpr double kBarelyLess = 0.99;
// Limits of the search for costs. If no cost can explain the time of a probe, the nearest limit is
// used.
constexpr double kSlowest = 1e5, kFastest = 1e13;  // bytes/s
constexpr double kLongestCost = 1;                 // s
// Costs of the wire depend on each other, so they are searched alternately, so many times.
constexpr int kTimes = 4;
// Bytes went at once if they took less than this part of their time by bandwidth, without latency.
constexpr double kAtOnce = 0.5;
// Largest part of a time over the wire that the processors may take.
constexpr double kProcessorPart = 0.9;

// Returns the x at which `seconds(x)`, which does not fall as x grows, reaches `wanted`.
double search(double least, double most, double wanted,
              const std::function<double(double)>& seconds) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (least + most) / 2;
    (seconds(middle) < wanted ? least : most) = middle;
  }
  return (least + most) / 2;
}

// Does the same for a bandwidth, with which `seconds` falls. It searches by factors, since a
// bandwidth may have any magnitude.
double search_bandwidth(double most, double wanted, const std::function<double(double)>& seconds) {
  double least = std::min(kSlowest, most);
  for (int i = 0; i < kRoots; ++i) {
    const double middle = std::sqrt(least * most);
    (seconds(middle) < wanted ? most : least) = middle;
  }
  return std::sqrt(least * most);
}

const Sample* find(const std::vector<Sample>& samples, Kind kind, double size) {
  for (const Sample& sample : samples)
    if (sample.probe.kind == kind && sample.probe.size == size && !sample.seconds.empty())
      return &sample;
  return nullptr;
}

// Returns the samples of a kind with the smallest and with the largest size.
std::pair<const Sample*, const Sample*> ends(const std::vector<Sample>& samples, Kind kind) {
  const Sample *low = nullptr, *high = nullptr;
  for (const Sample& sample : samples) {
    if (sample.probe.kind != kind || sample.seconds.empty()) continue;
    if (low == nullptr || sample.probe.size < low->probe.size) low = &sample;
    if (high == nullptr || sample.probe.size > high->probe.size) high = &sample;
  }
  return {low, high};
}

// Finds the costs of a host, which it simulates alone.
class OneHost {
 public:
  OneHost(const Topology& topology, int host, const std::vector<Sample>& samples, int processors)
      : samples_(samples), ranks_(topology.ranks_of_host(host)) {
    alone_.hosts = {topology.hosts[std::size_t(host)]};
    costs().cores = processors;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      alone_.processes.push_back({.host = 0, .first_rank = int(i)});
      alone_.ranks.push_back({.process = int(i), .host = 0});
    }
  }

  HostCosts calibrated() {
    signals();
    passes();
    stores();
    costs().read_ahead = better_read_ahead(samples_, ranks_);
    return costs();
  }

 private:
  HostCosts& costs() { return alone_.hosts[0].costs; }
  double measured(const Sample& sample) const { return usual_seconds(sample, ranks_); }
  double simulated(const Probe& probe) const {
    return simulate(probe_plan(probe, alone_.host_of_rank()), alone_).seconds;
  }
  // Returns the time by which `second` exceeds `first`, for each of `more` units. If other load
  // hides that, it returns an upper bound from the best time of `second`: nothing is free.
  double each(const Sample* first, const Sample* second, double more) const {
    if (first == nullptr || second == nullptr || more <= 0) return 0;
    const double longer = measured(*second) - measured(*first);
    return longer > 0 ? longer / more : best(*second) / second->probe.size;
  }
  // Returns the shortest time of all repetitions and ranks.
  double best(const Sample& sample) const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& of_ranks : sample.seconds)
      for (const int rank : ranks_) least = std::min(least, of_ranks[std::size_t(rank)]);
    return least;
  }

  // Finds the costs of signals. The slope from one round to many is a round. The rest of one is the
  // call.
  void signals() {
    const auto [one, many] = ends(samples_, Kind::kRounds);
    if (one == nullptr || one == many) return;
    const double round = each(one, many, many->probe.size - one->probe.size);
    const Sample* arrivals = ends(samples_, Kind::kArrivals).first;
    costs().step =
        arrivals == nullptr ? 0 : std::min(each(one, arrivals, arrivals->probe.size), round);
    costs().block = 0;  // part of the passes, which have many blocks
    costs().signal = round - costs().step;
    costs().reduction = costs().call = 0;
    const Sample* reductions = ends(samples_, Kind::kReductions).first;
    if (reductions != nullptr)
      costs().reduction =
          search(0, kLongestCost, measured(*reductions) - measured(*one), [&](double reduction) {
            costs().reduction = reduction;
            return simulated(reductions->probe) - simulated(one->probe);
          });
    costs().call = std::max(0.0, measured(*one) - round);
  }

  // Finds the passes. If waits hide the bytes of a size, it gets the costs of the next larger one.
  void passes() {
    std::vector<MemoryPass> found;
    const Sample* largest = nullptr;
    bool seen = false;
    for (const Sample& together : samples_) {
      if (together.probe.kind != Kind::kTogether || together.seconds.empty()) continue;
      const Sample* alone = find(samples_, Kind::kAlone, together.probe.size);
      if (alone == nullptr) continue;
      if (largest == nullptr || together.probe.size > largest->probe.size) largest = &together;
      const bool clear = visible(together);
      seen |= clear;
      found.push_back(clear ? pass(together, *alone) : MemoryPass{bytes(together), 0, 0});
    }
    if (largest == nullptr) return;
    std::sort(found.begin(), found.end(),
              [](const MemoryPass& a, const MemoryPass& b) { return a.bytes < b.bytes; });
    if (!seen) found.back() = least_pace(*largest);
    fill_in(found);
    costs().passes = found;
  }

  // Compares the same work with both kinds of stores: only the difference counts.
  void stores() {
    std::vector<StoreTimes> times;
    for (const Sample& kept : samples_) {
      if (kept.probe.kind != Kind::kKept || kept.seconds.empty()) continue;
      const Sample* streamed = find(samples_, Kind::kStreamed, kept.probe.size);
      if (streamed == nullptr) continue;
      times.push_back({bytes(kept), stored_at_once(kept.probe, ranks_.size()), measured(kept),
                       measured(*streamed)});
    }
    decide_stores(costs(), std::move(times));
  }

  double bytes(const Sample& pass) const { return pass.probe.size * double(ranks_.size()); }

  // Returns bandwidths if the waits may be all of the time of every pass: the largest pass was at
  // least as fast as without waits.
  MemoryPass least_pace(const Sample& together) {
    const HostCosts known = costs();
    costs().signal = costs().step = costs().reduction = costs().call = 0;
    const MemoryPass found = pass(together, *find(samples_, Kind::kAlone, together.probe.size));
    costs() = known;
    return found;
  }

  // Returns whether bytes take a good part of the time.
  bool visible(const Sample& sample) {
    costs().passes = {{sample.probe.size, kFastest, kFastest * double(ranks_.size())}};
    return measured(sample) * (1 - kVisible) > simulated(sample.probe);
  }

  // Finds the bandwidths of one size. A rank alone tells what a core can do, all together what the
  // host can do. That is less than the sum of its cores if they wait for the same memory. If all
  // together were faster than one alone allows, the latter was the worse measurement.
  MemoryPass pass(const Sample& together, const Sample& alone) {
    const double ranks = double(ranks_.size());
    MemoryPass found{bytes(together), 0, 0};
    const auto seconds = [&](const Probe& probe, double core, double host) {
      costs().passes = {{found.bytes, core, host}};
      return simulated(probe);
    };
    const double wanted = measured(together);
    found.core = search_bandwidth(kFastest, measured(alone), [&](double core) {
      return seconds(alone.probe, core, core * ranks);
    });
    if (seconds(together.probe, found.core, found.core * ranks) > wanted)
      found.core = search_bandwidth(kFastest, wanted, [&](double core) {
        return seconds(together.probe, core, core * ranks);
      });
    found.host = search_bandwidth(found.core * ranks, wanted, [&](double host) {
      return seconds(together.probe, found.core, host);
    });
    const Sample* fetched = find(samples_, Kind::kFetched, together.probe.size);
    if (fetched == nullptr || ranks < 2) return found;
    const auto with = [&](double fetch) {
      costs().passes = {{found.bytes, found.core, found.host, fetch}};
      return simulated(fetched->probe);
    };
    // If the host's memory or waits take all the time, the bandwidth of fetching is hidden.
    if (!visible(*fetched) || measured(*fetched) * kBarelyLess <= with(kFastest)) return found;
    found.fetch = search_bandwidth(kFastest, measured(*fetched), with);
    return found;
  }

  // Fills in unknown bandwidths from the next larger size, else from the next smaller one.
  static void fill_in(std::vector<MemoryPass>& passes) {
    const auto take = [](MemoryPass& to, const MemoryPass& from) {
      if (to.core == 0) to.core = from.core, to.host = from.host;
      if (to.fetch == 0) to.fetch = from.fetch;
    };
    for (std::size_t i = passes.size(); i-- > 1;) take(passes[i - 1], passes[i]);
    for (std::size_t i = 1; i < passes.size(); ++i) take(passes[i], passes[i - 1]);
  }

  const std::vector<Sample>& samples_;
  std::vector<int> ranks_;
  Topology alone_;
};

// Finds the costs of the wire with two hosts: each host sends to the next, so all pairs have equal
// traffic.
class TwoHosts {
 public:
  TwoHosts(const Topology& topology, const std::vector<Sample>& samples)
      : samples_(samples), all_(topology.ranks.size()) {
    for (std::size_t rank = 0; rank < all_.size(); ++rank) all_[rank] = int(rank);
    std::size_t flows = topology.ranks.size();
    for (std::size_t h = 0; h < topology.hosts.size(); ++h)
      flows = std::min(flows, topology.ranks_of_host(int(h)).size());
    two_.wire = topology.wire;
    for (int h = 0; h < 2; ++h) {
      two_.hosts.push_back(topology.hosts[std::size_t(h)]);
      for (std::size_t i = 0; i < flows; ++i) {
        two_.processes.push_back({.host = h, .first_rank = int(two_.ranks.size())});
        two_.ranks.push_back({.process = int(two_.ranks.size()), .host = h});
      }
    }
  }

  WireCosts calibrated() {
    const auto [small, large] = ends(samples_, Kind::kBulk);
    messages();
    if (large == nullptr) return two_.wire;
    bandwidth(*large);
    if (small == large) return two_.wire;
    const Sample* middle = below(*large);
    const bool bursts = at_once(*small);
    for (int i = 0; i < kTimes; ++i) {
      two_.wire.burst = 0;
      if (bursts) burst(*middle);
      processor(*small, *large);
      bandwidth(*large);
    }
    return two_.wire;
  }

 private:
  double measured(const Sample& sample) const { return usual_seconds(sample, all_); }
  double simulated(const Probe& probe) const {
    return simulate(probe_plan(probe, two_.host_of_rank()), two_).seconds;
  }
  // Sets the cost with which `seconds` is as wanted.
  void search_for(double WireCosts::*cost, const std::function<double()>& seconds, double wanted) {
    two_.wire.*cost = search(0, kLongestCost, wanted, [&](double value) {
      two_.wire.*cost = value;
      return seconds();
    });
  }

  // Finds the costs of messages. Many at once differ from few by the cost of each, except for what
  // the latency of the first hides. Messages in a row differ by the latency, too.
  void messages() {
    const auto [few, many] = ends(samples_, Kind::kAtOnce);
    const auto [one, row] = ends(samples_, Kind::kMessages);
    if (few == many || one == row) return;
    two_.wire = {.latency = 0, .bandwidth = kFastest, .processor = 0, .message = 0};
    const double more = measured(*many) - measured(*few), on = measured(*row) - measured(*one);
    const auto more_at_once = [&, few = few, many = many] {
      return simulated(many->probe) - simulated(few->probe);
    };
    const auto more_in_a_row = [&, one = one, row = row] {
      return simulated(row->probe) - simulated(one->probe);
    };
    for (int i = 0; i < kTimes; ++i) {
      search_for(&WireCosts::message, more_at_once, more);
      search_for(&WireCosts::latency, more_in_a_row, on);
    }
    if (two_.wire.latency < 1e-9) search_for(&WireCosts::message, more_in_a_row, on);
    two_.wire.call = std::max(0.0, measured(*one) - simulated(one->probe));
  }

  void bandwidth(const Sample& large) {
    two_.wire.bandwidth = search_bandwidth(kFastest, measured(large), [&](double bandwidth) {
      two_.wire.bandwidth = bandwidth;
      return simulated(large.probe);
    });
  }

  const Sample* below(const Sample& large) const {
    const Sample* next = nullptr;
    for (const Sample& sample : samples_)
      if (sample.probe.kind == Kind::kBulk && sample.probe.size < large.probe.size &&
          (next == nullptr || sample.probe.size > next->probe.size))
        next = &sample;
    return next;
  }

  // Returns whether the fewest bytes went at once. If they took as long as the bandwidth says, more
  // bytes do not go faster: a faster sample came after a pause, which others do not have.
  bool at_once(const Sample& small) {
    const double paced = simulated(small.probe);
    const double bandwidth = std::exchange(two_.wire.bandwidth, kFastest);
    const double way = simulated(small.probe);
    two_.wire.bandwidth = bandwidth;
    return measured(small) - way < kAtOnce * (paced - way);
  }

  // Finds the burst: the more bytes go at once, the less time they take.
  void burst(const Sample& middle) {
    const double most = middle.probe.size;
    two_.wire.burst = most - search(0, most, measured(middle), [&](double rest) {
                        two_.wire.burst = most - rest;
                        return simulated(middle.probe);
                      });
  }

  // Finds the processor time of bytes. It leaves the wire a part of the time of many bytes, since
  // the wire has a bandwidth of its own.
  void processor(const Sample& small, const Sample& large) {
    const double bandwidth = std::exchange(two_.wire.bandwidth, kFastest);
    search_for(
        &WireCosts::processor, [&] { return simulated(large.probe); },
        kProcessorPart * measured(large));
    const double most = two_.wire.processor;
    two_.wire.bandwidth = bandwidth;
    search_for(
        &WireCosts::processor, [&] { return simulated(small.probe); }, measured(small));
    two_.wire.processor = std::min(two_.wire.processor, most);
  }

  const std::vector<Sample>& samples_;
  std::vector<int> all_;
  Topology two_;
};

}  // namespace

void add_samples(std::vector<Sample>& samples, std::vector<Sample> more) {
  for (Sample& sample : more) {
    const auto same = std::find_if(samples.begin(), samples.end(), [&](const Sample& known) {
      return known.probe.kind == sample.probe.kind && known.probe.size == sample.probe.size &&
             known.probe.algorithm == sample.probe.algorithm;
    });
    if (same == samples.end()) {
      samples.push_back(std::move(sample));
      continue;
    }
    same->probe.repetitions += sample.probe.repetitions;
    std::move(sample.seconds.begin(), sample.seconds.end(), std::back_inserter(same->seconds));
  }
}

std::vector<double> part_medians(const Sample& sample, const std::vector<int>& ranks, int parts) {
  std::vector<double> slowest;
  for (const auto& of_ranks : sample.seconds) {
    double most = 0;
    for (const int rank : ranks) most = std::max(most, of_ranks[std::size_t(rank)]);
    slowest.push_back(most);
  }
  const std::size_t all = std::min(std::size_t(parts), slowest.size());
  std::vector<double> medians;
  for (std::size_t part = 0; part < all; ++part) {
    const auto cut = [&](std::size_t p) {
      return slowest.begin() + std::ptrdiff_t(slowest.size() * p / all);
    };
    medians.push_back(engine::median<double>({cut(part), cut(part + 1)}));
  }
  return medians;
}

double usual_seconds(const Sample& sample, const std::vector<int>& ranks) {
  const Probe& probe = sample.probe;
  if (probe.kind == Kind::kSum) return engine::median(part_medians(sample, ranks));
  const bool wakes =
      probe.kind >= Kind::kTurn && !(probe.kind == Kind::kBulk && probe.size >= kManyBytes);
  return std::ranges::min(part_medians(sample, ranks, wakes ? 1 : kParts));
}

bool better_read_ahead(const std::vector<Sample>& samples, const std::vector<int>& ranks) {
  const Sample* written = ends(samples, Kind::kWriteAhead).first;
  const Sample* read = ends(samples, Kind::kReadAhead).first;
  if (written == nullptr || read == nullptr || !asks_ahead(ranks.size())) return false;
  return better_read_ahead(usual_seconds(*written, ranks), usual_seconds(*read, ranks));
}

Topology calibrated(Topology topology, const std::vector<Sample>& samples,
                    const std::vector<int>& processors) {
  for (std::size_t host = 0; host < topology.hosts.size(); ++host)
    topology.hosts[host].costs =
        OneHost(topology, int(host), samples, processors[host]).calibrated();
  if (topology.hosts.size() > 1) topology.wire = TwoHosts(topology, samples).calibrated();
  topology.costs_are = "measured";
  return topology;
}

}  // namespace lockstep::collectives
