// SPDX-License-Identifier: MIT
// What `lockstep bench` runs is right before it is timed: in place and out of place, one after the
// other, by every algorithm.
#include "tools/bench/work.h"

#include <gtest/gtest.h>

#include "collectives/registry.h"
#include "collectives/verifier.h"

namespace lockstep::test {
namespace {

using collectives::Goal;
using collectives::StepPlan;
using engine::kBlock;
using tools::bench::Task;
using tools::bench::Work;

// These stages of the work, each after the one before.
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
        // After sums in place the sums out of place count double, but nobody gets in another's way.
        EXPECT_EQ(verify(in_turn(work, both), Goal::kNothing), "") << algorithm.name << count;
        EXPECT_EQ(verify(in_turn(work, work.in_place), Goal::kSumEverywhere), "");
        EXPECT_EQ(verify(in_turn(work, work.out_of_place), Goal::kNothing), "") << algorithm.name;
      }
}

}  // namespace
}  // namespace lockstep::test
