// SPDX-License-Identifier: MIT
// Connections between hosts that cannot be established.
#include "collectives/job/host_connections.h"

#include <gtest/gtest.h>

#include <thread>

#include "collectives/algorithms/algorithms.h"
#include "collectives/bootstrap/outcome.h"
#include "engine/base/error.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace host_connections_test {

using namespace std::chrono_literals;

// A rank may die between the exchange of addresses and its first connection. The process that
// watches it abandons the bootstrap, so that no rank waits for the deadline.
TEST(HostConnections, ADeathWhileTheyAreMadeEndsThem) {
  const auto views = collectives::in_memory_bootstrap({0, 1}, 60s);
  collectives::Request request;
  request.name = "sum";
  request.subject = {0, 10};
  request.host = {0, 1};
  const collectives::StepPlan step{{ring_all_reduce(request), {}, false}};
  std::jthread other([&] {
    const std::string nobody = "127.0.0.1:1\n" + std::string(64, '0');
    collectives::all_or_none(*views[1], "sum: addresses of the ranks", [&] { return nobody; });
    EXPECT_TRUE(await(others_sleep));
    views[1]->abandon({engine::Code::kPeerLost, "rank 1 (pid 4711) died"});
  });
  const auto begin = engine::Clock::now();
  try {
    collectives::connect_hosts(collectives::rank_of_each_process(*views[0]), step, {}, 60s,
                               "sum: ");
    ADD_FAILURE() << "connected with nobody";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kPeerLost);
    EXPECT_STREQ(error.what(), "rank 1 (pid 4711) died");
  }
  EXPECT_LT(engine::Clock::now() - begin, 30s);
}

}  // namespace host_connections_test
}  // namespace lockstep::test
