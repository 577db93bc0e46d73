// SPDX-License-Identifier: MIT
// The predicted times of a fused and a separate update, and the other criteria of the choice.
#include "strategies/synchronous/step_prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/topology/example_topologies.h"
#include "engine/optim/optimizer.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep::test {
namespace step_prices_test {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// A predicted time includes all that an update needs, not the sums alone.
TEST(StepPrices, AreOfAllThatAnUpdateNeeds) {
  const collectives::HostCosts memory{
      .signal = 0, .step = 0, .block = 0, .passes = {{0, 1e9, 1e9}}};  // of all ranks together
  const auto host = collectives::equal_hosts(1, 2, memory, {});
  const strategies::StepQuestion question{.sums = {8192}, .buckets = {8192}};
  const auto of = [&](const engine::optim::Optimizer& optimizer) {
    return strategies::price_step(host, optimizer.rule, question);
  };
  // For 8192 bytes, direct passes over 4 times as many. An update passes over the weights once and
  // each slot twice more. If it is separate, each of the two ranks does this, and stores.
  const double bytes = 8192 * 1e-9;
  const auto plain = of(engine::optim::sgd()), momentum = of(engine::optim::sgd({.momentum = 0.9}));
  const auto adam = of(engine::optim::adam());
  const auto clipped = of(engine::optim::sgd({.clip_norm = 1}));
  EXPECT_NEAR(plain.fused->seconds(8192), 5 * bytes, 1e-9);
  EXPECT_NEAR(plain.separate.seconds(8192), (4 + 6) * bytes, 1e-9);
  EXPECT_NEAR(momentum.fused->seconds(8192), 7 * bytes, 1e-9);
  EXPECT_NEAR(momentum.separate.seconds(8192), (4 + 10) * bytes, 1e-9);
  EXPECT_NEAR(adam.fused->seconds(8192), 9 * bytes, 1e-9);
  EXPECT_NEAR(adam.separate.seconds(8192), (4 + 14) * bytes, 1e-9);
  // With clipping, a fused update first stores half as many bytes and reads them again. A separate
  // one makes one more pass over its input.
  EXPECT_NEAR(clipped.fused->seconds(8192), (3 + 4) * bytes, 0.1 * bytes);
  EXPECT_NEAR(clipped.separate.seconds(8192), (4 + 2 + 6) * bytes, 0.1 * bytes);
}

// Predictions cover algorithms that support these ranks and have a place for a fused update, if
// any.
TEST(StepPrices, AreOfTheAlgorithmsThatCanBe) {
  const auto price = [](const char* cluster, double clip) {
    return strategies::price_step(collectives::example_topology(cluster),
                                  engine::optim::sgd({.clip_norm = clip}).rule,
                                  {.sums = {4096}, .buckets = {4096}});
  };
  EXPECT_THAT(price("3x1", 0).fused->sums.algorithms(),
              UnorderedElementsAre("ring", "hierarchical", "leader_hierarchical"));
  EXPECT_THAT(price("3x1", 0).separate.sums.algorithms(), testing::Contains("halving_doubling"));
  EXPECT_THAT(price("1x4", 0).fused->sums.algorithms(), testing::Contains("direct"));
  EXPECT_THAT(price("1x4", 1).fused->sums.algorithms(), ElementsAre("direct"));
}

// A rule may name an algorithm without a place for the update if no bucket has its sizes.
TEST(StepPrices, ObeyRules) {
  strategies::StepQuestion question{.sums = {64, 4096}, .buckets = {4096}};
  question.rules = collectives::parse_size_rules("halving_doubling:..4k,ring:4k..");
  const auto prices = strategies::price_step(collectives::example_topology("3x1"),
                                             engine::optim::sgd().rule, question);
  EXPECT_EQ(prices.fused->sums.choose(4096).algorithm, "ring");
  EXPECT_EQ(prices.separate.sums.choose(4096).algorithm, "ring");
}

TEST(StepDesign, KnowsProcessorsThatAreUnlike) {
  collectives::Topology topology = collectives::example_topology("3x1");
  EXPECT_FALSE(strategies::unlike_processors(topology));
  topology.ranks[1].device = "cpu:1";
  EXPECT_FALSE(strategies::unlike_processors(topology));
  topology.ranks[1].device = "cuda:0";
  EXPECT_TRUE(strategies::unlike_processors(topology));
  topology = collectives::example_topology("3x1");
  topology.hosts[2].cpu = "another";
  EXPECT_TRUE(strategies::unlike_processors(topology));
}

}  // namespace step_prices_test
}  // namespace lockstep::test
