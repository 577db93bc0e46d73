// SPDX-License-Identifier: MIT
// Memory is planned before it is allocated. A model that does not fit is refused without an
// allocation, and the error names the tensor and a batch that fits. That batch then opens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <regex>

#include "collectives/topology/machine.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "strategies/synchronous/memory_use.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace memory_test {

using engine::Code;
using engine::Error;
using strategies::MemoryRoom;
using testing::HasSubstr;

constexpr std::size_t kMebibyte = std::size_t(1) << 20;

// Returns a model with more than a megabyte per example and very few weights.
engine::GraphSpec images() {
  engine::GraphSpec graph("images", {64, 64, 1});
  graph.then("conv", engine::convolution(64, 3));
  graph.then("tanh", engine::tanh());
  graph.then("pool", engine::max_pool(31));
  graph.then("dense", engine::dense(2));
  graph.set_loss(engine::mean_squared_error());
  return graph;
}

struct Opened {
  std::optional<Code> code;
  std::string text;
};

Opened open(std::size_t batch, MemoryRoom room, std::size_t limit, int count = 2) {
  auto options = replicas(count);
  options.room = room;
  options.memory_limit = limit;
  strategies::Mirrored strategy(options);
  try {
    strategy.open(images(), engine::optim::sgd({.momentum = 0.9}).rule, {batch, 1, 1, {}});
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

std::size_t batch_that_fits(const std::string& text) {
  std::smatch found;
  const std::regex pattern("the largest batch that fits is ([0-9]+)");
  return std::regex_search(text, found, pattern) ? std::stoul(found[1]) : 0;
}

TEST(Memory, WhatIsMoreThanTheLimitIsRefusedByNameAndNothingIsTaken) {
  const std::size_t before = collectives::process_memory();
  const Opened opened = open(100'000, {10 * kMebibyte}, 80 * kMebibyte);
  EXPECT_EQ(opened.code, Code::kMemory);
  EXPECT_THAT(opened.text, HasSubstr("batch 100000 needs"));
  EXPECT_THAT(opened.text, HasSubstr("the memory limit is 80 MiB, of which 10 MiB are in use"));
  EXPECT_THAT(opened.text, HasSubstr("the output of conv, 50000x62x62x64"));
  EXPECT_LT(collectives::process_memory(), before + 40 * kMebibyte);
}

TEST(Memory, TheBatchThatIsSaidToFitFitsAndOneMoreDoesNot) {
  for (const auto& [room, limit] :
       {std::pair{MemoryRoom{10 * kMebibyte}, 80 * kMebibyte},
        std::pair{MemoryRoom{10 * kMebibyte, 70 * kMebibyte}, std::size_t(0)}}) {
    const std::size_t fits = batch_that_fits(open(100'000, room, limit).text);
    ASSERT_GT(fits, 2u);
    EXPECT_EQ(open(fits, room, limit).text, "");
    EXPECT_EQ(open(fits + 1, room, limit).code, Code::kMemory);
  }
}

TEST(Memory, WhereNoBatchFitsItSaysSo) {
  for (const MemoryRoom room : {MemoryRoom{10 * kMebibyte, 1}, MemoryRoom{10 * kMebibyte, 0}}) {
    const Opened opened = open(4, room, 0);
    EXPECT_EQ(opened.code, Code::kMemory);
    EXPECT_THAT(opened.text, HasSubstr("no batch fits"));
  }
  EXPECT_THAT(open(4, {10 * kMebibyte}, 9 * kMebibyte).text, HasSubstr("no batch fits"));
}

TEST(Memory, AStrategyThatWasRefusedOpensWithLess) {
  auto options = replicas(2);
  options.memory_limit = collectives::process_memory() + 80 * kMebibyte;
  strategies::Mirrored strategy(options);
  const engine::UpdateRule rule = engine::optim::sgd({}).rule;
  EXPECT_THROW(strategy.open(images(), rule, {10'000, 1, 1, {}}), Error);
  strategy.open(images(), rule, {2, 1, 1, {}});
  EXPECT_THAT(strategy.explain(), HasSubstr("\nmemory: "));
}

TEST(Memory, AfterARefusalNothingRuns) {
  auto options = replicas(2);
  options.memory_limit = collectives::process_memory() + 80 * kMebibyte;
  strategies::Mirrored strategy(options);
  const engine::UpdateRule rule = engine::optim::sgd({}).rule;
  strategy.open(images(), rule, {2, 1, 1, {}});
  EXPECT_THROW(strategy.open(images(), rule, {10'000, 1, 1, {}}), Error);
  try {
    strategy.run([](engine::Replica&) { ADD_FAILURE() << "there is no memory for it"; });
    ADD_FAILURE() << "it ran";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "mirrored: run before open");
  }
}

TEST(Memory, AnEqualFitIsAFit) {
  const auto use_of = [](std::size_t batch) {
    strategies::MemoryUse use;
    use.parts = {{"activations", batch * kMebibyte}};
    return use;
  };
  strategies::require_memory({5, 8 * kMebibyte}, 0, 8, use_of);
  EXPECT_THROW(strategies::require_memory({5, 8 * kMebibyte}, 0, 9, use_of), Error);
  strategies::require_memory({kMebibyte, 8 * kMebibyte}, 5 * kMebibyte, 4, use_of);
  EXPECT_THROW(strategies::require_memory({kMebibyte}, 5 * kMebibyte - 1, 4, use_of), Error);
}

}  // namespace memory_test
}  // namespace lockstep::test
