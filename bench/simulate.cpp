// SPDX-License-Identifier: MIT
// Times the prediction of one all-reduce on a cluster that need not exist: making and simulating
// its plan. Prints the peak memory of the program. With --plan it times planning: every algorithm
// for every size.
//
// usage: simulate [--topology NAME] [--algorithm NAME] [--bytes N] [--plan] [--json]
#include <fmt/core.h>
#include <sys/resource.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "collectives/cost/planner.h"
#include "collectives/cost/simulator.h"
#include "collectives/topology/example_topologies.h"
#include "engine/base/error.h"
#include "tools/bench/program_flags.h"

namespace lockstep {
namespace {

using engine::Clock;

struct Flags {
  std::string topology = "128x8", algorithm = "hierarchical";
  std::size_t bytes = std::size_t(64) << 20;
  bool plan = false, json = false;
};

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double most_memory_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) / double(1 << 20);
}

int run(const Flags& flags) {
  const collectives::Topology topology = collectives::example_topology(flags.topology);
  nlohmann::json result = {{"topology", flags.topology}, {"ranks", topology.ranks.size()}};
  if (flags.plan) {
    const auto begin = Clock::now();
    const collectives::Choices choices =
        collectives::plan_all_reduce(topology, collectives::all_reduce_algorithms());
    result["plan_seconds"] = since(begin);
    result["hash"] = fmt::format("{:016x}", choices.hash());
  } else {
    const collectives::Request request = collectives::priced_request(topology, flags.bytes);
    auto begin = Clock::now();
    const collectives::Plan plan = collectives::find_algorithm(flags.algorithm).make(request);
    result["make_seconds"] = since(begin);
    std::size_t steps = 0;
    for (const auto& lanes : plan.lanes)
      for (const collectives::Lane& lane : lanes) steps += lane.size();
    begin = Clock::now();
    const collectives::Simulation simulation = simulate(plan, topology);
    result["simulate_seconds"] = since(begin);
    result["algorithm"] = flags.algorithm;
    result["bytes"] = flags.bytes;
    result["steps"] = steps;
    result["predicted_us"] = simulation.seconds * 1e6;
  }
  result["most_memory_gib"] = most_memory_gib();
  if (flags.json) {
    fmt::print("{}\n", result.dump());
  } else {
    for (const auto& [key, value] : result.items()) fmt::print("{:18} {}\n", key, value.dump());
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using lockstep::tools::bench::ProgramFlags;
  lockstep::Flags f;
  ProgramFlags flags("bench_simulate", "The price of pricing.");
  flags.option("--topology", f.topology);
  flags.option("--algorithm", f.algorithm);
  flags.option("--bytes", f.bytes);
  flags.flag("--plan", f.plan, "plan all sizes instead of simulating one");
  flags.flag("--json", f.json);
  return flags.run(argc, argv, [&] { return lockstep::run(f); });
}
