// SPDX-License-Identifier: MIT
// Weights that arrive with the answers to a worker's pushes have the right version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "test/strategies/parameter_server/server/small_server.h"

namespace lockstep::test {
namespace prefetch_test {

using namespace strategies;
using testing::Each;

constexpr std::size_t kElements = 10;

JobSpec job(std::uint64_t most_staleness = 0) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {kElements})};
  spec.rule = sgd_rule();
  spec.policy.workers = 2;
  spec.policy.most_staleness = most_staleness;
  return spec;
}

// Returns half of a worker's step: elements [0, 5), or with `last` elements [5, 10).
PushOrder half(SmallServer& server, std::uint32_t worker, bool last) {
  PushOrder order = server.order(worker, std::vector<float>(kElements / 2, 1.0f));
  order.parts = {{0, last ? kElements / 2 : 0, last ? kElements : kElements / 2}};
  order.last = last;
  order.want_weights = true;
  return order;
}

void step(SmallServer& server, std::uint32_t worker) {
  server.push(half(server, worker, false));
  server.push(half(server, worker, true));
}

TEST(Prefetch, TheOwnStepCountsBeforeItsEnd) {
  SmallServer server(job());
  const ShardAnswer first = server.push(half(server, 0, false));
  EXPECT_EQ(first.version, 1);
  EXPECT_THAT(floats_of(first.body), Each(-0.1f));
  EXPECT_EQ(server.job().version(), 0) << "for all others the step is not over";
  const ShardAnswer last = server.push(half(server, 0, true));
  EXPECT_EQ(last.version, 1);
  server.pulled[0] = 1;
  EXPECT_EQ(server.push(half(server, 0, false)).staleness, 0u);
}

TEST(Prefetch, WhatOthersPushAfterTheAnswerIsStaleness) {
  SmallServer server(job());
  server.pulled[0] = server.push(half(server, 0, false)).version;
  step(server, 1);
  EXPECT_EQ(server.push(half(server, 0, true)).version, 2) << "its own step, and the other's";
  EXPECT_EQ(server.push(half(server, 0, false)).staleness, 1u)
      << "its first half came before the other's step";
}

TEST(Prefetch, AStepThatIsDroppedDoesNotCount) {
  SmallServer server(job(1));
  step(server, 1);
  step(server, 1);
  const ShardAnswer answer = server.push(half(server, 0, false));
  EXPECT_EQ(answer.what, PushOutcome::kTooStale);
  EXPECT_EQ(answer.version, 2);
}

}  // namespace prefetch_test
}  // namespace lockstep::test
