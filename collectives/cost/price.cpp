// SPDX-License-Identifier: MIT
#include "collectives/cost/price.h"

#include <algorithm>
#include <array>

#include "collectives/cost/size_rules.h"
#include "collectives/topology/doublings.h"
#include "collectives/topology/example_topologies.h"
#include "collectives/topology/ring_order.h"

namespace lockstep::collectives {
namespace {

constexpr std::array<int, 3> kFewHosts{2, 4, kExactHosts};  // host counts of the small clusters
constexpr int kFewRanks = 2;                                // per host, to find how steps grow
constexpr double kLooksAStep = 16;                          // looks that cost as much as a step
// Bytes per rank to find how steps grow: large enough that no plan leaves out rounds.
constexpr std::size_t kUsualBytes = std::size_t(64) << 10;

Request request(const Topology& topology, std::size_t bytes, const PriceOptions& options) {
  Request request = priced_request(topology, bytes);
  request.update = options.update;
  request.wire = options.wire;
  return request;
}

double steps_a_rank(const Plan& plan) {
  double steps = 0;
  for (const auto& lanes : plan.lanes)
    for (const Lane& lane : lanes) steps += double(lane.size());
  return steps / plan.ranks();
}

double messages_of(const Plan& plan) {
  double messages = 0;
  for (const auto& lanes : plan.lanes)
    for (const Lane& lane : lanes)
      messages += double(std::ranges::count(lane, Action::kPostSend, &Step::action));
  return messages;
}

// Simulates a plan. `bytes`: those of the collective that the plan represents.
Price price_of(const Plan& plan, const Topology& topology, std::size_t bytes,
               const PriceOptions& options) {
  const Simulation run = simulate(plan, topology, {.bytes = double(bytes), .slots = options.slots});
  return {
      .seconds = run.seconds,
      .wire_seconds = std::max(0.0, run.wire_bytes - topology.wire.burst) / topology.wire.bandwidth,
      .part_seconds = run.part_seconds,
      .work_seconds = run.work_seconds,
      .round_seconds = run.round_seconds,
      .part = run.part,
      .wire_bytes = run.wire_bytes,
      .memory_bytes = run.memory_bytes,
      .rounds = double(run.rounds),
      .messages = messages_of(plan)};
}

template <class Of>
Price each(const Of& of) {
  return {.seconds = of(&Price::seconds),
          .wire_seconds = of(&Price::wire_seconds),
          .part_seconds = of(&Price::part_seconds),
          .work_seconds = of(&Price::work_seconds),
          .round_seconds = of(&Price::round_seconds),
          .wire_bytes = of(&Price::wire_bytes),
          .memory_bytes = of(&Price::memory_bytes),
          .rounds = of(&Price::rounds),
          .messages = of(&Price::messages),
          .trial = of(&Price::trial)};
}

struct HostRanks {
  std::size_t ranks = 0;
  int cores = 1;  // shared by the ranks
  bool operator==(const HostRanks&) const = default;
};

std::vector<HostRanks> ranks_by_host_of(const Topology& topology) {
  std::vector<HostRanks> hosts(topology.hosts.size());
  for (const Topology::Rank& rank : topology.ranks) ++hosts[std::size_t(rank.host)].ranks;
  for (const Topology::Process& process : topology.processes)
    hosts[std::size_t(process.host)].cores =
        std::max(hosts[std::size_t(process.host)].cores, process.cores);
  for (std::size_t host = 0; host < hosts.size(); ++host)
    if (const int cores = topology.hosts[host].costs.cores; cores > 0) hosts[host].cores = cores;
  return hosts;
}

// Returns whether the ranks of each host are adjacent and all hosts are equal.
bool equal_in_order(const Topology& topology, const std::vector<HostRanks>& hosts) {
  for (std::size_t rank = 0; rank < topology.ranks.size(); ++rank)
    if (topology.ranks[rank].host != int(rank / hosts[0].ranks)) return false;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    if (hosts[host] != hosts[0] || topology.hosts[host].costs != topology.hosts[0].costs)
      return false;
  return true;
}

// Returns roughly the time in which the ranks of a host add so many bytes of each. It serves to
// compare hosts.
double seconds_to_add(const HostCosts& costs, const HostRanks& host, double bytes) {
  const auto ranks = double(host.ranks);
  const MemoryPass pass = costs.pass(ranks * bytes);
  const double at_once =
      costs.link == LinkClass::kMemory ? std::min(ranks, double(host.cores)) : ranks;
  return costs.signal + 2 * ranks * bytes / std::min(pass.host, pass.core * at_once);
}

// Returns a cluster in which every host is like the slowest one of `topology`.
Topology leveled(const Topology& topology, const std::vector<HostRanks>& hosts, std::size_t bytes) {
  std::size_t slowest = 0;
  double most = 0;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const double seconds = seconds_to_add(topology.hosts[host].costs, hosts[host], double(bytes));
    if (seconds > most) slowest = host, most = seconds;
  }
  return equal_hosts(int(hosts.size()), int(hosts[slowest].ranks), topology.hosts[slowest].costs,
                     topology.wire, hosts[slowest].cores);
}

// Holds small clusters for an algorithm: the first hosts of a cluster.
struct Pictures {
  const Algorithm& algorithm;
  const PriceOptions& options;
  std::array<Topology, kFewHosts.size()> topologies;

  Pictures(const Algorithm& of, const Topology& topology, const PriceOptions& priced)
      : algorithm(of), options(priced) {
    for (std::size_t i = 0; i < kFewHosts.size(); ++i)
      topologies[i] = topology.first_hosts(kFewHosts[i]);
  }
  Plan plan(std::size_t i, std::size_t bytes) const {
    return algorithm.make(request(topologies[i], bytes, options));
  }
  // Returns whether steps grow with the number of hosts. From 4 to 8 hosts, such steps grow by
  // twice as much as from 2 to 4; steps that grow with the logarithm grow by as much. A few ranks
  // per host suffice to tell.
  bool grows_with_hosts() const {
    const int ranks = std::min(kFewRanks, int(topologies[0].ranks.size()) / kFewHosts[0]);
    std::array<double, kFewHosts.size()> steps{};
    for (std::size_t i = 0; i < kFewHosts.size(); ++i) {
      const Topology few = equal_hosts(kFewHosts[i], ranks, {}, {});
      steps[i] =
          steps_a_rank(algorithm.make(request(few, few.ranks.size() * kUsualBytes, options)));
    }
    return steps[2] - steps[1] >= 1.5 * (steps[1] - steps[0]);
  }
};

}  // namespace

Price along(const Price& a, const Price& b, double part) {
  Price price = each([&](double Price::*x) { return a.*x + part * (b.*x - a.*x); });
  price.part = part < 0.5 ? a.part : b.part;
  price.reduced = a.reduced || b.reduced;
  return price;
}

Range priced_subject(std::size_t bytes) {
  return {0, (bytes + sizeof(float) - 1) / sizeof(float)};
}

Request priced_request(const Topology& topology, std::size_t bytes) {
  Request request;
  request.name = size_text(bytes);
  request.subject = priced_subject(bytes);
  request.host = topology.host_of_rank();
  request.order = ring_order(topology);
  return request;
}

Price price(const Algorithm& algorithm, const Topology& topology, std::size_t bytes,
            const PriceOptions& options) {
  const int hosts = int(topology.hosts.size());
  const auto exact = [&] {
    return price_of(algorithm.make(request(topology, bytes, options)), topology, bytes, options);
  };
  if (hosts <= kExactHosts) return exact();
  const std::vector<HostRanks> ranks = ranks_by_host_of(topology);
  const Pictures pictures(
      algorithm, equal_in_order(topology, ranks) ? topology : leveled(topology, ranks, bytes),
      options);
  const bool line = pictures.grows_with_hosts();
  const auto bytes_for = [&](std::size_t i) {
    const auto few = std::size_t(kFewHosts[i]), all = std::size_t(hosts);
    return line ? std::max<std::size_t>(1, (bytes * few + all - 1) / all) : bytes;
  };
  std::array<Plan, kFewHosts.size()> plans;
  for (std::size_t i = line ? 1 : 0; i < kFewHosts.size(); ++i)
    plans[i] = pictures.plan(i, bytes_for(i));
  const double hosts_on = double(hosts - kFewHosts[2]) / (kFewHosts[2] - kFewHosts[1]);
  const double doublings_on = doublings(kFewHosts[2], hosts);
  const double steps =
      steps_a_rank(plans[2]) +
      (line ? hosts_on : doublings_on) * (steps_a_rank(plans[2]) - steps_a_rank(plans[1]));
  // An algorithm with rounds through all ranks looks at each round for each rank, even if there is
  // nothing to do in it.
  const auto all_ranks = double(topology.ranks.size());
  const double looks = line ? all_ranks * all_ranks / kLooksAStep : 0;
  if (steps * all_ranks + looks < (line ? 1 : 4) * options.exact_steps) return exact();
  const auto few = [&](std::size_t i) {
    return price_of(plans[i], pictures.topologies[i], bytes, options);
  };
  const Price four = few(1), eight = few(2);
  Price price;
  if (line) {
    price = along(four, eight, 1 + hosts_on);
  } else {
    // The times are a + b + c / 2, a + 2 b + c / 4, a + 3 b + c / 8, so their second difference is
    // c / 8.
    const Price two = few(0);
    price = each([&](double Price::*x) {
      const double last = eight.*x - four.*x;
      const double c = 8 * std::min(0.0, last - (four.*x - two.*x));
      const double b = std::max(0.0, last + c / 8);
      return eight.*x + b * doublings_on + c * (1.0 / hosts - 1.0 / kFewHosts[2]);
    });
  }
  price.seconds = std::max({price.seconds, price.wire_seconds, price.part_seconds,
                            price.work_seconds, price.round_seconds});
  price.part = eight.part;
  price.reduced = true;
  return price;
}

}  // namespace lockstep::collectives
