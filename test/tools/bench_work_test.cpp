// SPDX-License-Identifier: MIT
// Tests that the timed work of `lockstep bench` is correct in place and out of place, one after the
// other, for every algorithm.
#include "tools/bench/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/registry.h"
#include "collectives/check/verifier.h"
#include "engine/base/error.h"
#include "tools/bench/overlap.h"

namespace lockstep::test {
namespace bench_work_test {

using collectives::Goal;
using collectives::StepPlan;
using engine::kBlock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using tools::bench::Collective;
using tools::bench::Task;
using tools::bench::Work;

// Returns these stages of the work in sequence.
StepPlan in_turn(const Work& work, const std::vector<int>& stages) {
  StepPlan step;
  for (const int stage : stages) {
    step.push_back(work.plan[std::size_t(stage)]);
    step.back().after.clear();
    if (step.size() > 1) step.back().after = {int(step.size()) - 2};
  }
  return step;
}

TEST(BenchWork, IsRightInPlaceAndOutOfPlace) {
  for (const int ranks : {2, 3})
    for (const auto& algorithm : collectives::all_reduce_algorithms())
      for (const std::size_t count : {std::size_t(1), 5 * kBlock + 7, 100 * kBlock}) {
        Task task;
        task.host.assign(std::size_t(ranks), 0);
        const Work work = tools::bench::work(task, std::string(algorithm.name), count);
        std::vector<int> both = work.in_place;
        both.insert(both.end(), work.out_of_place.begin(), work.out_of_place.end());
        // After sums in place, sums out of place count double, but the stages do not interfere.
        EXPECT_EQ(verify(in_turn(work, both), Goal::kNothing), "") << algorithm.name << count;
        EXPECT_EQ(verify(in_turn(work, work.in_place), Goal::kSumEverywhere), "");
        EXPECT_EQ(verify(in_turn(work, work.out_of_place), Goal::kNothing), "") << algorithm.name;
      }
}

// Works in one step use stages and scratch of their own.
TEST(BenchWork, OfSeveralAlgorithmsDoNotInterfere) {
  Task task;
  task.host = {0, 0, 0};
  const std::size_t count = 5 * kBlock + 7;
  Work all;
  std::vector<int> stages;
  std::vector<std::string> names;
  for (const auto& algorithm : collectives::all_reduce_algorithms()) {
    names.emplace_back(algorithm.name);
    Work one = tools::bench::work(task, names.back(), count, all.scratch, int(all.plan.size()));
    EXPECT_EQ(one.in_place[0], int(all.plan.size())) << algorithm.name;
    for (const auto& part : {one.in_place, one.out_of_place})
      stages.insert(stages.end(), part.begin(), part.end());
    std::ranges::move(one.plan, std::back_inserter(all.plan));
    all.elements = std::max(all.elements, one.elements);
    all.scratch += one.scratch;
  }
  EXPECT_EQ(verify(in_turn(all, stages), Goal::kNothing), "");
  EXPECT_EQ(tools::bench::work_elements(task, names, count), all.elements + all.scratch);
}

// On one host, the roofline contains everything that each rank reads, adds, and stores in `direct`,
// without waits.
TEST(BenchWork, TheRooflineIsDirectWithoutItsWaits) {
  for (const auto& [collective, algorithm] :
       {std::pair(Collective::kAllReduce, "ring"), std::pair(Collective::kAllReduce, "direct"),
        std::pair(Collective::kReduceScatter, "direct"),
        std::pair(Collective::kAllGather, "direct"), std::pair(Collective::kBroadcast, "direct")})
    for (const int ranks : {2, 3}) {
      Task task;
      task.collective = collective;
      task.host.assign(std::size_t(ranks), 0);
      const std::size_t count = 100 * kBlock;
      const Work work = tools::bench::work(task, algorithm, count);
      ASSERT_EQ(work.roofline.size(), 1u);
      const auto& roofline = work.plan[std::size_t(work.roofline[0])].plan;
      collectives::Plan direct = tools::bench::in_place_plan(task, "direct", count);
      std::size_t waits = 0, reductions = 0;
      for (auto& lanes : direct.lanes)
        for (auto& lane : lanes) {
          waits += std::erase_if(lane, [](const collectives::Step& step) {
            return step.action != collectives::Action::kReduce;
          });
          reductions += lane.size();
        }
      EXPECT_GT(waits, 0u);
      EXPECT_GT(reductions, 0u);
      EXPECT_EQ(roofline.lanes, direct.lanes) << name(collective) << ranks;
    }
  Task task;
  task.host = {0, 1};
  EXPECT_THAT(tools::bench::work(task, "ring", kBlock).roofline, IsEmpty());
}

// The sums took 8 us alone, and 2 us more than the backward pass beside it.
TEST(Overlap, HidesWhatBothTakeLessTogether) {
  tools::bench::Overlap found;
  found.compute_us = 10, found.alone_us = 8, found.together_us = 12;
  found.task.host = {0, 1};
  EXPECT_DOUBLE_EQ(found.hidden_percent().value(), 75);
  found.task.host = {0, 0};
  EXPECT_EQ(found.hidden_percent(), std::nullopt) << "one host";
  found.task.host = {0, 1};
  found.together_us = 9;
  EXPECT_EQ(found.hidden_percent(), std::nullopt) << "noise";
}

TEST(BenchWork, BetweenHostsTheRooflineIsWhatTheWireTakes) {
  Task task;
  task.host = {0, 0, 1, 1, 1, 2};
  EXPECT_DOUBLE_EQ(wire_us(task, 250'000, 1e8).value(), 4.0 / 3 * 1e4);
  task.dtype = engine::DType::kFloat16;
  EXPECT_DOUBLE_EQ(wire_us(task, 250'000, 1e8).value(), 2.0 / 3 * 1e4);
  EXPECT_EQ(wire_us(task, 250'000, 0), std::nullopt);
  task.collective = Collective::kBroadcast;
  EXPECT_EQ(wire_us(task, 250'000, 1e8), std::nullopt);
  task.collective = Collective::kAllReduce;
  task.host = {0, 0};
  EXPECT_EQ(wire_us(task, 250'000, 1e8), std::nullopt);
}

TEST(BenchWork, OfEveryCollectiveIsRight) {
  const std::pair<Collective, Goal> cases[] = {{Collective::kReduceScatter, Goal::kSumOfMySlice},
                                               {Collective::kAllGather, Goal::kOneEverywhere},
                                               {Collective::kBroadcast, Goal::kOneEverywhere}};
  for (const auto& [collective, goal] : cases)
    for (const int ranks : {2, 3})
      for (const std::size_t count : {std::size_t(1), 5 * kBlock + 7, 100 * kBlock}) {
        Task task;
        task.collective = collective;
        task.host.assign(std::size_t(ranks), 0);
        const Work work = tools::bench::work(task, "direct", count);
        std::vector<int> both = work.in_place;
        both.insert(both.end(), work.out_of_place.begin(), work.out_of_place.end());
        EXPECT_EQ(verify(in_turn(work, work.in_place), goal), "") << name(collective) << count;
        EXPECT_EQ(verify(in_turn(work, both), Goal::kNothing), "") << name(collective) << count;
        // Together, the ranks begin with all inputs of a broadcast or all-gather, each element
        // once.
        std::size_t inputs = 0;
        for (int rank = 0; rank < ranks; ++rank) inputs += input_range(task, count, rank).size();
        EXPECT_EQ(inputs, task.reduces() ? count * std::size_t(ranks) : count);
      }
}

std::string refusal(const Task& task, const std::string& wanted) {
  try {
    tools::bench::asked(task, wanted, 1024);
  } catch (const engine::Error& error) {
    return error.what();
  }
  return {};
}

TEST(BenchWork, WhatIsAskedForIsAListOrBySize) {
  Task task;
  task.host.assign(2, 0);
  const auto asked = [&](const std::string& wanted, std::size_t count = 1024) {
    return tools::bench::asked(task, wanted, count);  // of 4 bytes each
  };
  EXPECT_THAT(asked("auto"), ElementsAre("auto"));
  EXPECT_THAT(asked("ring,auto,direct"), ElementsAre("ring", "auto", "direct"));
  EXPECT_THAT(asked("direct:..4k,ring:4k..8k"), ElementsAre("ring"));
  EXPECT_THAT(asked("direct:..4k,ring:4k..8k", 1023), ElementsAre("direct"));
  EXPECT_THAT(asked("direct:..4k,ring:4k..8k", 2048), ElementsAre("auto"));
  EXPECT_THAT(asked("ring, direct"), ElementsAre("ring", "direct"));
  EXPECT_THAT(asked("auto:..8k, ring:8k..", 2048), ElementsAre("ring"));
  EXPECT_THAT(asked("auto:..8k, ring:8k.."), ElementsAre("auto"));
  EXPECT_THAT(asked("auto:.."), ElementsAre("auto"));
  EXPECT_THAT(refusal(task, "ring:..4k,direct"), HasSubstr("direct:FROM..TO"));
  EXPECT_THAT(refusal(task, "rinq:1g.."), HasSubstr("'rinq'"));  // even if no size matches
  EXPECT_THAT(refusal(task, "ring,rinq"), HasSubstr("'rinq'"));
  EXPECT_THAT(refusal(task, ""), HasSubstr("names no algorithm"));
  task.host = {0, 1};
  EXPECT_THAT(refusal(task, "direct:1g.."), HasSubstr("needs all ranks on one host"));
  EXPECT_THAT(asked("all"), Not(IsEmpty()));
  task.collective = Collective::kBroadcast;
  EXPECT_THAT(refusal(task, "all"),
              HasSubstr("broadcast is made by direct alone, which needs all"));
  EXPECT_THAT(refusal(task, "ring"), HasSubstr("all-reduces only, and broadcast was asked for"));
}

}  // namespace bench_work_test
}  // namespace lockstep::test
