// SPDX-License-Identifier: MIT
// Costs are found one after the other, each by a probe that depends on it and on those found
// before: the simulator is asked what the probe takes for a cost, and the cost for which it says
// what was measured is searched by halving. So no formula of the simulator stands here a second
// time.
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

// Of bytes between hosts: beside what so many take nobody sees who was asleep.
constexpr double kManyBytes = 128 << 10;
constexpr int kHalvings = 36;  // of a search: a second to less than a tenth of a nanosecond
constexpr int kRoots = 24;     // of one by factors: to a millionth
// Of a time, the part that bytes must have for their pace to be looked for.
constexpr double kVisible = 0.15;
// Where the fastest fetching takes this part of a measured time, or more, the rest is noise and not
// the pace of fetching.
constexpr double kBarelyLess = 0.99;
// What costs are looked for between. Where a probe says less or more than any cost can explain, the
// nearest is taken.
constexpr double kSlowest = 1e5, kFastest = 1e13;  // bytes/s
constexpr double kLongestCost = 1;                 // s
// Costs of the wire depend on each other: they are searched in turn, so often.
constexpr int kTimes = 4;
// Of the time that bytes take at the wire's pace, beside their way: in less they went at once.
constexpr double kAtOnce = 0.5;
// Of a time over the wire, what the processors may have of it.
constexpr double kProcessorPart = 0.9;

// Where `seconds(x)`, which does not fall as x grows, reaches `wanted`.
double search(double least, double most, double wanted,
              const std::function<double(double)>& seconds) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (least + most) / 2;
    (seconds(middle) < wanted ? least : most) = middle;
  }
  return (least + most) / 2;
}

// The same for a bandwidth, with which `seconds` falls; by factors, since it may be anything.
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

// The smallest and the largest of a kind.
std::pair<const Sample*, const Sample*> ends(const std::vector<Sample>& samples, Kind kind) {
  const Sample *low = nullptr, *high = nullptr;
  for (const Sample& sample : samples) {
    if (sample.probe.kind != kind || sample.seconds.empty()) continue;
    if (low == nullptr || sample.probe.size < low->probe.size) low = &sample;
    if (high == nullptr || sample.probe.size > high->probe.size) high = &sample;
  }
  return {low, high};
}

// A host by itself, as the simulator sees it.
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
  // How much longer the second takes for each unit of `size`, after the first. Where other work on
  // the machine hides that, what the best of its times leaves for one at most: nothing is free.
  double each(const Sample* first, const Sample* second, double more) const {
    if (first == nullptr || second == nullptr || more <= 0) return 0;
    const double longer = measured(*second) - measured(*first);
    return longer > 0 ? longer / more : best(*second) / second->probe.size;
  }
  // Of all repetitions, of all ranks.
  double best(const Sample& sample) const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& of_ranks : sample.seconds)
      for (const int rank : ranks_) least = std::min(least, of_ranks[std::size_t(rank)]);
    return least;
  }

  // Of one round and many, the slope is a round, and what one takes beside it is the call.
  void signals() {
    const auto [one, many] = ends(samples_, Kind::kRounds);
    if (one == nullptr || one == many) return;
    const double round = each(one, many, many->probe.size - one->probe.size);
    const Sample* arrivals = ends(samples_, Kind::kArrivals).first;
    costs().step =
        arrivals == nullptr ? 0 : std::min(each(one, arrivals, arrivals->probe.size), round);
    costs().block = 0;  // a part of the passes, which are of many blocks
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

  // Sizes whose bytes cannot be seen beside the waits for each other are priced as the next larger.
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

  // The same work with both kinds of stores: it is the difference alone that counts.
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

  // Where the waits could be all of what every pass took: the largest was at least as fast as if
  // it had waited for nobody.
  MemoryPass least_pace(const Sample& together) {
    const HostCosts known = costs();
    costs().signal = costs().step = costs().reduction = costs().call = 0;
    const MemoryPass found = pass(together, *find(samples_, Kind::kAlone, together.probe.size));
    costs() = known;
    return found;
  }

  // Whether bytes are a good part of what it took.
  bool visible(const Sample& sample) {
    costs().passes = {{sample.probe.size, kFastest, kFastest * double(ranks_.size())}};
    return measured(sample) * (1 - kVisible) > simulated(sample.probe);
  }

  // A rank alone tells what a core can do, all together what the host can: less than its cores
  // could where they wait for the same memory. Where all together were faster than one alone
  // allows, that was the worse measurement.
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
    // Where the host's memory takes all the time, or waits do, no pace of fetching can be seen.
    if (!visible(*fetched) || measured(*fetched) * kBarelyLess <= with(kFastest)) return found;
    found.fetch = search_bandwidth(kFastest, measured(*fetched), with);
    return found;
  }

  // Where no pace was seen it is that of the next size above, else of the next below.
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

// What is sent between two hosts is what is sent between all: each sends to the next.
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
  // Leaves the cost with which `seconds` is as wanted.
  void search_for(double WireCosts::*cost, const std::function<double()>& seconds, double wanted) {
    two_.wire.*cost = search(0, kLongestCost, wanted, [&](double value) {
      two_.wire.*cost = value;
      return seconds();
    });
  }

  // Many at once differ from few by what each costs, but for what is hidden by the way of the
  // first; one behind the other by the way too.
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

  // Where the fewest bytes go at the wire's pace, more do not go faster: whoever saw some that did
  // came after a pause, which others do not.
  bool at_once(const Sample& small) {
    const double paced = simulated(small.probe);
    const double bandwidth = std::exchange(two_.wire.bandwidth, kFastest);
    const double way = simulated(small.probe);
    two_.wire.bandwidth = bandwidth;
    return measured(small) - way < kAtOnce * (paced - way);
  }

  // The more goes at once, the less time it takes.
  void burst(const Sample& middle) {
    const double most = middle.probe.size;
    two_.wire.burst = most - search(0, most, measured(middle), [&](double rest) {
                        two_.wire.burst = most - rest;
                        return simulated(middle.probe);
                      });
  }

  // No more than leaves the wire a part in many bytes: it has a pace of its own.
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
