// SPDX-License-Identifier: MIT
// Tests damaged cluster descriptions. They are refused as invalid, or yield a topology that
// survives a round trip. A plan on that topology has a predicted time or is refused.
#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/cost/simulator.h"
#include "collectives/topology/topology.h"
#include "engine/base/error.h"
#include "test/fuzz/damage.h"

namespace lockstep::test {
namespace topology_fuzz_test {

using collectives::Topology;

const std::string kWhole = R"({"hosts": [
  {"name": "a", "count": 2, "ranks": 3, "cores": 2, "memory": 1000,
   "costs": {"link": "nvlink", "port_bytes_per_second": 1e9, "signal_seconds": 1e-6,
             "links": [{"a": 0, "b": 2, "bytes_per_second": 5e9}]}},
  {"name": "b", "costs": {"passes": [{"bytes": 1e6, "core_bytes_per_second": 4e10},
                                     {"bytes": 1e8, "core_bytes_per_second": 1e10}]}}],
  "wire": {"latency_seconds": 2e-5, "bytes_per_second": 1e9}})";

TEST(TopologyFuzz, ADamagedFileIsRefusedOrIsATopology) {
  std::uint64_t read = 0, refused = 0;
  for (std::uint64_t number = 0; number < kInputs; ++number) {
    try {
      const Topology topology = collectives::topology_from_json(damaged(kWhole, number));
      ++read;
      const Topology again = collectives::topology_from_json(to_json(topology));
      ASSERT_EQ(again.ranks, topology.ranks) << number;
      ASSERT_EQ(again.processes, topology.processes) << number;
      ASSERT_EQ(again.wire, topology.wire) << number;
      for (std::size_t host = 0; host < topology.hosts.size(); ++host)
        ASSERT_EQ(again.hosts[host].costs, topology.hosts[host].costs) << number;
      if (topology.ranks.empty() || topology.ranks.size() > 16) continue;
      collectives::Request request;
      request.subject = {0, 4096};
      request.host = topology.host_of_rank();
      simulate(collectives::ring_all_reduce(request), topology);
    } catch (const engine::Error& error) {
      ASSERT_EQ(error.code(), engine::Code::kInvalid) << number << ": " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, kInputs / 200);  // most damage hits a key
  EXPECT_GT(refused, kInputs / 10);
}

}  // namespace topology_fuzz_test
}  // namespace lockstep::test
