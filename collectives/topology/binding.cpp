// SPDX-License-Identifier: MIT
#include "collectives/topology/binding.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tuple>

#include "collectives/topology/cgroup.h"
#include "collectives/topology/processor_map.h"
#include "engine/base/quantity.h"

namespace lockstep::collectives {
namespace {

constexpr int kMostInSet = 1 << 16;  // processors

using Core = std::vector<int>;  // its processors
struct Node {
  std::vector<Core> cores;
};

// Returns the nodes with their cores. Cores that share a cache are adjacent.
std::vector<Node> nodes_of(MachineMap map) {
  std::ranges::sort(map.processors, {}, [](const PlacedProcessor& p) {
    return std::tuple(p.node, p.cache, p.core, p.number);
  });
  std::vector<Node> nodes;
  const PlacedProcessor* before = nullptr;
  for (const PlacedProcessor& one : map.processors) {
    if (before == nullptr || before->node != one.node) nodes.emplace_back();
    std::vector<Core>& cores = nodes.back().cores;
    if (cores.empty() || before->core != one.core) cores.emplace_back();
    cores.back().push_back(one.number);
    before = &one;
  }
  return nodes;
}

std::size_t begin_of(std::size_t all, std::size_t part, std::size_t parts) {
  return all * part / parts;
}

// Returns one of `parts` equal contiguous parts.
template <class T>
std::span<const T> part_of_all(const std::vector<T>& all, std::size_t part, std::size_t parts) {
  const std::size_t begin = begin_of(all.size(), part, parts);
  return std::span(all).subspan(begin, begin_of(all.size(), part + 1, parts) - begin);
}

using Places = std::vector<std::vector<int>>;  // per thread or replica

// Places each thread on at least one core. Replicas stay on one node if the nodes have room for all
// of them.
Places on_cores(const std::vector<Node>& nodes, std::size_t replicas, std::size_t threads) {
  std::size_t whole = 0;
  for (const Node& node : nodes) whole += node.cores.size() / threads;
  const std::size_t unit = whole >= replicas ? threads : 1;
  std::size_t left = replicas * threads;
  Places places;
  for (const Node& node : nodes) {
    const std::size_t here = std::min(left, node.cores.size() / unit * unit);
    for (std::size_t thread = 0; thread < here; ++thread) {
      std::vector<int>& place = places.emplace_back();
      for (const Core& core : part_of_all(node.cores, thread, here))
        place.insert(place.end(), core.begin(), core.end());
    }
    left -= here;
  }
  return places;
}

// Places more threads than cores, with at least one processor each: one thread on every core, then
// one more on each from the first on, until all are placed.
Places on_hyperthreads(const std::vector<Node>& nodes, std::size_t threads) {
  std::vector<const Core*> cores;
  for (const Node& node : nodes)
    for (const Core& core : node.cores) cores.push_back(&core);
  std::vector<std::size_t> count(cores.size());
  for (std::size_t left = threads; left > 0;)
    for (std::size_t core = 0; core < cores.size() && left > 0; ++core)
      if (count[core] < cores[core]->size()) ++count[core], --left;
  Places places;
  for (std::size_t core = 0; core < cores.size(); ++core)
    for (std::size_t thread = 0; thread < count[core]; ++thread) {
      const auto part = part_of_all(*cores[core], thread, count[core]);
      places.emplace_back(part.begin(), part.end());
    }
  return places;
}

// Collects processes that may use the same processors.
struct Sharing {
  std::vector<std::size_t> processes = {};
  std::size_t replicas = 0;
};

// Returns the processors of each replica; empty if the kernel may choose.
Places places_of(const MachineMap& map, std::size_t replicas, std::size_t threads) {
  const std::vector<Node> nodes = nodes_of(map);
  std::size_t cores = 0;
  for (const Node& node : nodes) cores += node.cores.size();
  const std::size_t all = map.processors.size(), busy = replicas * threads;
  Places of_replicas(replicas);
  if (busy < all && nodes.size() == 1 && cores == all) return of_replicas;
  const Places places =
      busy <= cores ? on_cores(nodes, replicas, threads) : on_hyperthreads(nodes, busy);
  for (std::size_t thread = 0; thread < busy; ++thread) {
    std::vector<int>& place = of_replicas[thread / threads];
    place.insert(place.end(), places[thread].begin(), places[thread].end());
  }
  for (std::vector<int>& place : of_replicas) std::ranges::sort(place);
  return of_replicas;
}

std::string taking_turns(std::size_t replicas, std::size_t threads, std::size_t processors) {
  return fmt::format("{} of {} share {}: they take turns", engine::count_text(replicas, "replica"),
                     engine::count_text(threads, "thread"),
                     engine::count_text(processors, "processor"));
}

}  // namespace

std::vector<int> allowed_processors() {
  std::vector<int> allowed;
  for (int most = 1024; most <= kMostInSet && allowed.empty(); most *= 2) {
    cpu_set_t* set = CPU_ALLOC(std::size_t(most));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(most));
    const bool ok = sched_getaffinity(0, bytes, set) == 0;  // fails if the kernel's set is larger
    for (int i = 0; ok && i < most; ++i) {
      if (CPU_ISSET_S(i, bytes, set)) allowed.push_back(i);
    }
    CPU_FREE(set);
  }
  return allowed;
}

std::string to_text(std::span<const int> processors) {
  return fmt::format("{}", fmt::join(processors, ","));
}

std::vector<int> processors_of(const std::string& text) {
  std::vector<int> processors;
  for (const char *at = text.data(), *const end = at + text.size(); at < end; ++at) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) return {};
    processors.push_back(number);
    at = next;
  }
  return processors;
}

std::vector<Binding> plan_bindings(std::span<const HostProcess> processes, const MachineMap& map,
                                   int threads, int cores) {
  std::vector<Binding> bindings(processes.size());
  std::map<std::vector<int>, Sharing> sharing;
  for (std::size_t p = 0; p < processes.size(); ++p) {
    bindings[p].processors.resize(std::size_t(processes[p].replicas));
    Sharing& same = sharing[processes[p].processors];
    same.processes.push_back(p);
    same.replicas += std::size_t(processes[p].replicas);
  }
  for (const auto& [processors, same] : sharing) {
    const std::size_t all = processors.size(), each = std::size_t(threads);
    const std::size_t there = std::min(all, std::size_t(std::max(1, cores)));
    if (all == 0) continue;
    if (same.replicas * each > there)
      for (const std::size_t p : same.processes)
        bindings[p].warning = taking_turns(same.replicas, each, there);
    if (same.replicas * each > all || there < all) continue;
    Places places = places_of(part_of(map, processors), same.replicas, each);
    auto next = places.begin();
    for (const std::size_t p : same.processes)
      for (std::vector<int>& of_replica : bindings[p].processors) of_replica = std::move(*next++);
  }
  return bindings;
}

Binding plan_binding(std::span<const HostProcess> processes, std::size_t mine,
                     const MachineMap& map, int threads, int cores) {
  return plan_bindings(processes, map, threads, cores)[mine];
}

std::string why_confined(const Confinement& c) {
  if (c.quota > 0 && c.quota < c.allowed)
    return fmt::format("a CPU quota, as containers have, allows {:g} of {} processors", c.quota,
                       c.allowed);
  if (c.allowed >= c.online) return {};
  if (c.bound_by_mpirun)
    return fmt::format("mpirun bound this process to {} of {} processors; give it --bind-to none",
                       c.allowed, c.online);
  return fmt::format(
      "this process may run on {} of {} processors, by taskset, a cpuset or a batch "
      "system",
      c.allowed, c.online);
}

Confinement confinement() {
  const char* const bound = std::getenv("OMPI_MCA_orte_bound_at_launch");
  return {int(allowed_processors().size()), int(sysconf(_SC_NPROCESSORS_ONLN)),
          cgroup_limits().cores, bound != nullptr && std::string_view(bound) == "1"};
}

void bind_this_thread(std::span<const int> processors) {
  if (processors.empty()) return;
  const int most = *std::max_element(processors.begin(), processors.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(std::size_t(most));
  if (set == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(most));
  CPU_ZERO_S(bytes, set);
  for (int processor : processors) CPU_SET_S(processor, bytes, set);
  sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

}  // namespace lockstep::collectives
