// SPDX-License-Identifier: MIT
// Several plans in flight run on one thread by progress() alone, in many orders. Updates inside
// reductions equal formulas that are computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "collectives/algorithms/algorithms.h"
#include "collectives/check/verifier.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace walking_test {

using engine::kBlock;

constexpr std::size_t kLength = 4 * kBlock + 76, kCut = 2 * kBlock;

// Returns two plans over neighboring ranges.
StepPlan two_plans(bool first_is_ring, bool second_is_ring, const std::vector<int>& host) {
  StepPlan step;
  std::size_t scratch = 0;
  for (const bool ring : {first_is_ring, second_is_ring}) {
    Request request;
    request.name = step.empty() ? "first" : "second";
    request.dtype = DType::kFloat64;
    request.subject = step.empty() ? Range{0, kCut} : Range{kCut, kLength};
    request.host = host;
    request.scratch = scratch;
    scratch += ring_scratch(request);
    step.push_back({ring ? ring_all_reduce(request) : direct_all_reduce(request), {}, false});
  }
  return step;
}

double input(int rank, std::size_t i) {
  return double(i + 1) * (rank + 1);
}

void fill(Job& job) {
  for (int rank = 0; rank < job.ranks(); ++rank)
    for (std::size_t i = 0; i < kLength; ++i) job.values<double>(rank)[i] = input(rank, i);
}

void expect_sums(Job& job) {
  const int n = job.ranks();
  for (int rank = 0; rank < n; ++rank)
    for (std::size_t i = 0; i < kLength; ++i)
      ASSERT_EQ(job.values<double>(rank)[i], double(i + 1) * n * (n + 1) / 2) << rank << " " << i;
}

bool all_done(Job& job) {
  for (int rank = 0; rank < job.ranks(); ++rank)
    if (!job.executor(rank).done(0) || !job.executor(rank).done(1)) return false;
  return true;
}

TEST(Walk, TwoPlansInFlightOnOneThreadByProgressAlone) {
  for (int seed = 0; seed < 120; ++seed)
    for (int kinds = 0; kinds < 5; ++kinds) {
      const bool apart = kinds == 4;
      Job job(two_plans(apart || kinds & 1, apart || kinds & 2, hosts(apart ? "equal" : "one", 3)),
              kLength + 4 * kBlock);
      fill(job);
      std::mt19937 random{unsigned(seed)};
      std::vector<int> starts{0, 1, 2, 3, 4, 5};  // rank * 2 + plan, in any order
      std::shuffle(starts.begin(), starts.end(), random);
      for (int i = 0; i < 100000 && !(starts.empty() && all_done(job)); ++i) {
        if (i % 7 == 0 && !starts.empty()) {
          job.executor(starts.back() / 2).start(starts.back() % 2, nullptr);
          starts.pop_back();
        }
        job.executor(int(random() % 3)).progress(1 + int(random() % 3));
      }
      ASSERT_TRUE(all_done(job)) << "seed " << seed;
      expect_sums(job);
    }
}

// Ranks execute one_shot again and again, each as far ahead as it can. Other ranks then still read
// its scratch.
TEST(Walk, OneShotExecutedAgainAndAgainByRanksThatRunAhead) {
  constexpr int kRanks = 3, kTimes = 12;
  constexpr std::size_t kFew = 3 * kBlock;
  Request request;
  request.dtype = DType::kFloat64;
  request.subject = {0, kFew};
  request.host = hosts("one", kRanks);
  const auto number = [](int rank, int time, std::size_t i) {
    return double(i % 97 + 1) * (rank + 1) * (time + 1);
  };
  for (int seed = 0; seed < 60; ++seed) {
    Job job({{one_shot_all_reduce(request), {}, false}}, one_shot_scratch(request));
    std::mt19937 random{unsigned(seed)};
    std::vector<int> times(kRanks, 0);
    const auto begin = [&](int rank) {
      for (std::size_t i = 0; i < kFew; ++i)
        job.values<double>(rank)[i] = number(rank, times[std::size_t(rank)], i);
      job.executor(rank).start(0, nullptr);
    };
    for (int rank = 0; rank < kRanks; ++rank) begin(rank);
    const auto over = [&] { return *std::min_element(times.begin(), times.end()) == kTimes; };
    for (int i = 0; i < 100000 && !over(); ++i) {
      const int rank = int(random() % kRanks);
      int& time = times[std::size_t(rank)];
      if (time == kTimes) continue;
      for (int steps = int(random() % 12); steps >= 0 && time < kTimes; --steps) {
        job.executor(rank).progress(1);
        if (!job.executor(rank).done(0)) continue;
        for (std::size_t k = 0; k < kFew; ++k)
          ASSERT_EQ(job.values<double>(rank)[k], number(0, time, k) * kRanks * (kRanks + 1) / 2)
              << "seed " << seed << " rank " << rank << " time " << time;
        if (++time < kTimes) begin(rank);
      }
    }
    ASSERT_TRUE(over()) << "seed " << seed;
  }
}

TEST(Walk, TheSecondPlanOvertakesTheFirst) {
  Job job(two_plans(false, false, {0, 0}), kLength);
  job.executor(0).start(0, nullptr);
  job.executor(0).start(1, nullptr);
  job.executor(1).start(1, nullptr);
  for (int i = 0; i < 200; ++i) job.executor(i % 2).progress();
  EXPECT_FALSE(job.executor(0).done(0));
  EXPECT_TRUE(job.executor(0).done(1));
  EXPECT_TRUE(job.executor(1).done(1));
}

// Each wait moves both plans: rank 0 waits for the first, rank 1 for the second.
TEST(Walk, EveryWaitMovesAllPlans) {
  Job job(two_plans(false, true, {0, 0}), kLength);
  fill(job);
  const auto errors = job.run([&](int rank) {
    const int first = rank, second = 1 - rank;
    job.executor(rank).start(first, nullptr);
    job.executor(rank).start(second, nullptr);
    job.executor(rank).wait(first);
    job.executor(rank).wait(second);
  });
  for (const auto& error : errors) EXPECT_EQ(text(error), "");
  expect_sums(job);
}

// With one executor per plan, waits move only their own plan and never end, and the deadline
// notices. This shows that the test above tests something.
TEST(Walk, AWaitThatMovesOnlyItsOwnPlanIsNoticed) {
  const StepPlan both = two_plans(false, true, {0, 0});
  JobOptions options;
  options.executor.deadline = std::chrono::milliseconds(100);
  Job first({both[0]}, kLength, options), second({both[1]}, kLength, options);
  const auto errors = first.run([&](int rank) {
    Job& mine = rank == 0 ? first : second;
    Job& other = rank == 0 ? second : first;
    mine.executor(rank).start(0, nullptr);
    other.executor(rank).start(0, nullptr);
    mine.executor(rank).wait(0);
    other.executor(rank).wait(0);
  });
  for (const auto& error : errors) EXPECT_NE(text(error).find("waited 100 ms"), std::string::npos);
}

TEST(Walk, APlanBeginsWhenThoseThatItComesAfterHaveEnded) {
  StepPlan step = two_plans(false, false, {0, 0});
  step[1].plan.name = "after";
  step[1].after = {0};
  Job job(std::move(step), kLength);
  fill(job);
  job.executor(0).start(1, nullptr);
  job.executor(1).start(1, nullptr);
  for (int i = 0; i < 100; ++i) job.executor(i % 2).progress();
  EXPECT_FALSE(job.executor(0).done(1));
  job.executor(0).start(0, nullptr);
  job.executor(1).start(0, nullptr);
  for (int i = 0; i < 100; ++i) job.executor(i % 2).progress();
  EXPECT_TRUE(all_done(job));
  expect_sums(job);
}

TEST(Walk, ABudgetBoundsTheBlocksOfACall) {
  int blocks = 0;
  JobOptions options;
  options.executor.hook = [&] { ++blocks; };
  Request request;
  request.subject = {0, 20 * kBlock};
  request.host = {0};
  request.dtype = DType::kFloat64;
  request.squares = true;
  Job job({{direct_reduce_scatter(request), {}, false}}, 20 * kBlock, options);
  job.executor(0).start(0, nullptr);
  for (const int wanted : {7, 14, 20}) {
    job.executor(0).progress(7);
    EXPECT_EQ(blocks, wanted);
  }
  EXPECT_TRUE(job.executor(0).done(0));
}

TEST(Walk, WhatIsFirstInLineRunsBeforeAllElse) {
  StepPlan step;
  for (const bool first : {false, true}) {
    Request request;
    request.subject = first ? Range{20 * kBlock, 21 * kBlock} : Range{0, 20 * kBlock};
    request.host = {0};
    request.squares = true;
    step.push_back({direct_reduce_scatter(request), {}, first});
  }
  Job job(std::move(step), 21 * kBlock);
  job.executor(0).start(0, nullptr);
  job.executor(0).start(1, nullptr);
  job.executor(0).progress(2);
  EXPECT_TRUE(job.executor(0).done(1));
  EXPECT_FALSE(job.executor(0).done(0));
}

// Momentum and clipping follow the formulas on one host, with exactly the same bits if they are
// fused or separate. Fused: sums, an exchange of norms, update and store. Separate: sums
// everywhere, then squares and an update per rank.
class Updates : public testing::TestWithParam<bool> {};

TEST_P(Updates, AreTheFormulasAndTheSameFusedAndSeparate) {
  const bool clip = GetParam();
  constexpr std::size_t kWeights = 5 * kBlock + 300, kBucket = 2 * kBlock;
  constexpr int kSteps = 3;
  engine::UpdateRule rule;
  rule.momentum = 0.5;
  rule.clip_norm = clip ? 30.0 : 0.0;
  const auto gradient = [](int step, int rank, std::size_t i) {
    return double((i * 3 + std::size_t(rank) * 5 + std::size_t(step)) % 16) / 8 - 1;
  };
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<double> wanted(kWeights, 1.0), velocity(kWeights, 0.0);
    std::vector<std::vector<double>> results;
    engine::StepState state;
    for (const bool fused : {true, false}) {
      JobOptions options;
      options.rule = rule;
      options.norm_blocks = (kWeights + kBlock - 1) / kBlock;
      StepPlan plan;
      std::vector<int> sums;
      for (const bool update : {false, true})
        for (std::size_t begin = 0, b = 0; begin < kWeights; begin += kBucket, ++b) {
          Request r;
          r.dtype = DType::kFloat64;
          r.subject = {begin, std::min(begin + kBucket, kWeights)};
          r.host = hosts("one", ranks);
          r.rotation = int(b);
          if (!update) {
            r.squares = fused;
            plan.push_back({fused ? direct_reduce_scatter(r) : direct_all_reduce(r), {}, false});
            r.squares = false;
            if (!fused) plan.push_back({local_squares(r), {int(plan.size()) - 1}, false});
            sums.push_back(int(plan.size()) - 1);
          } else {
            plan.push_back({fused ? direct_update_and_store(r) : local_update(r), sums, false});
            options.updates.push_back(int(plan.size()) - 1);
          }
        }
      ASSERT_EQ(collectives::verify(plan, collectives::Goal::kUpdateEverywhere), "");
      std::vector<int> all(plan.size());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = int(i);
      Job job(plan, kWeights, options);
      for (int rank = 0; rank < ranks; ++rank)
        std::fill_n(job.values<double>(rank, Space::kWeight), kWeights, 1.0);
      for (int step = 0; step < kSteps; ++step) {
        state.step = step;
        state.rate = 0.125 / (step + 1);
        for (int rank = 0; rank < ranks; ++rank)
          for (std::size_t i = 0; i < kWeights; ++i)
            job.values<double>(rank)[i] = gradient(step, rank, i);
        job.execute(all, &state);
      }
      for (int rank = 0; rank < ranks; ++rank) {
        const double* weights = job.values<double>(rank, Space::kWeight);
        results.emplace_back(weights, weights + kWeights);
        EXPECT_EQ(results.back(), results.front()) << "rank " << rank << " fused " << fused;
      }
    }
    for (int step = 0; step < kSteps; ++step) {
      std::vector<double> sum(kWeights);
      double squares = 0;
      for (std::size_t i = 0; i < kWeights; ++i) {
        for (int rank = 0; rank < ranks; ++rank) sum[i] += gradient(step, rank, i);
        squares += sum[i] * sum[i];
      }
      const double scale =
          clip ? std::min(1.0, rule.clip_norm / (std::sqrt(squares) + 1e-12)) : 1.0;
      EXPECT_EQ(scale < 1, clip) << "the case must clip: norm " << std::sqrt(squares);
      for (std::size_t i = 0; i < kWeights; ++i) {
        velocity[i] = 0.5 * velocity[i] + scale * sum[i];
        wanted[i] -= 0.125 / (step + 1) * velocity[i];
      }
    }
    for (std::size_t i = 0; i < kWeights; ++i)
      ASSERT_NEAR(results[0][i], wanted[i], 1e-12) << ranks << " ranks, weight " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Walk, Updates, testing::Bool(),
                         [](const auto& clip) { return clip.param ? "Clipped" : "Plain"; });

TEST(OwnedState, PacksItsRangesOneBehindTheOther) {
  collectives::OwnedState owned;
  owned.ranges = {{100, 110}, {300, 305}};
  EXPECT_EQ(owned.elements(), 15u);
  EXPECT_EQ(owned.local(100), 0u);
  EXPECT_EQ(owned.local(109), 9u);
  EXPECT_EQ(owned.local(304), 14u);
  EXPECT_THROW(owned.local(110), engine::Error);
  EXPECT_THROW(owned.local(99), engine::Error);
}

}  // namespace walking_test
}  // namespace lockstep::test
