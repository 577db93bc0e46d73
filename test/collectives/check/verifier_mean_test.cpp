// SPDX-License-Identifier: MIT
// The verifier checks means and operations. A whole sum must be scaled once by 1 / n for a mean,
// and never otherwise. One operation must have joined all numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/steps.h"
#include "collectives/check/verifier.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace verifier_mean_test {

using collectives::Action;
using collectives::Algorithm;
using collectives::all_reduce_algorithms;
using collectives::Goal;
using collectives::Lane;
using collectives::Step;
using collectives::verify;
using engine::Epilogue;
using engine::kBlock;
using testing::HasSubstr;

constexpr int kRanks = 5;

Request request(const std::vector<int>& host) {
  Request request;
  request.name = "p";
  request.subject = {0, 40 * kBlock};
  request.host = host;
  request.mean = true;
  return request;
}

Plan direct_mean() {
  return direct_all_reduce(request(hosts("one", kRanks)));
}

void change_all(Plan& plan, const std::function<void(Step&)>& change) {
  for (auto& lanes : plan.lanes)
    for (Lane& lane : lanes)
      for (Step& step : lane)
        if (step.action == Action::kReduce) change(step);
}

// Expects `what` from the verifier for each algorithm on each layout, after `change` has altered
// the plan.
void each_says(const std::function<void(Plan&)>& change,
               const testing::Matcher<std::string>& what) {
  for (const std::string& layout : kLayouts) {
    const std::vector<int> host = hosts(layout, kRanks);
    for (const Algorithm& algorithm : all_reduce_algorithms()) {
      if (!algorithm.refusal(host).empty()) continue;
      Plan plan = algorithm.make(request(host));
      ASSERT_EQ(verify(plan, Goal::kSumEverywhere), "") << algorithm.name;
      change(plan);
      EXPECT_THAT(verify(plan, Goal::kSumEverywhere), what) << algorithm.name << ", " << layout;
    }
  }
}

TEST(VerifierOfMeans, ANeverScaledOneIsNoticedInEveryAlgorithm) {
  each_says([](Plan& p) { change_all(p, [](Step& s) { s.epilogue = Epilogue::kNone; }); },
            HasSubstr("the sum is wrong, scaled by 1 and not by 0.2: plan p, rank 0, element 0"));
}

// If one of the ranks that scale forgets it, some elements are not scaled.
TEST(VerifierOfMeans, OneForgottenScaleIsNoticedInEveryAlgorithm) {
  each_says(
      [](Plan& p) {
        bool forgotten = false;
        change_all(p, [&](Step& s) {
          if (s.epilogue == Epilogue::kScale && !forgotten)
            s.epilogue = Epilogue::kNone, forgotten = true;
        });
      },
      HasSubstr("scaled by 1 and not by 0.2"));
}

TEST(VerifierOfMeans, AnotherFactorIsNoticedInEveryAlgorithm) {
  each_says([](Plan& p) { change_all(p, [](Step& s) { s.scale = 0.25; }); },
            HasSubstr("scaled by 0.25 and not by 0.2"));
}

TEST(VerifierOfMeans, AScaleOfWhatIsNoMeanIsNoticedInEveryAlgorithm) {
  each_says([](Plan& p) { p.mean = false; }, HasSubstr("scaled by 0.2 and not by 1"));
}

// The verifier notices a copy of scaled numbers that scales them again.
TEST(VerifierOfMeans, ASecondScaleIsNoticedInEveryAlgorithm) {
  each_says(
      [](Plan& p) {
        for (auto& lanes : p.lanes)
          for (Lane& lane : lanes)
            for (std::size_t i = 0; i < lane.size(); ++i)
              if (lane[i].epilogue == Epilogue::kScale) {
                Step again = lane[i];
                again.from = {again.to[0]};
                lane.insert(lane.begin() + std::ptrdiff_t(i) + 1, again);
                for (Step& step : lane)
                  if (step.post > int(i)) ++step.post;
                return;
              }
      },
      HasSubstr("a sum is scaled twice"));
}

TEST(VerifierOfMeans, ASliceThatIsNotScaledIsNotWhole) {
  Plan plan = direct_reduce_scatter(request(hosts("one", kRanks)));
  EXPECT_EQ(verify(plan, Goal::kSumOfMySlice), "");
  change_all(plan, [](Step& s) { s.epilogue = Epilogue::kNone; });
  EXPECT_THAT(verify(plan, Goal::kSumOfMySlice), HasSubstr("nobody has the whole sum"));
}

TEST(VerifierOfMeans, OneRankHasNothingToScale) {
  EXPECT_EQ(verify(direct_all_reduce(request({0})), Goal::kSumEverywhere), "");
}

TEST(VerifierOfMeans, AnUpdateTakesWhatWasPromised) {
  Request r = request(hosts("one", kRanks));
  r.mean = false;
  StepPlan step{{direct_mean(), {}, false}, {local_update(r), {0}, false}};
  EXPECT_EQ(verify(step, Goal::kUpdateEverywhere), "");
  step[0].plan.mean = false;
  EXPECT_THAT(verify(step, Goal::kUpdateEverywhere),
              HasSubstr("the weight is not updated, scaled by 0.2 and not by 1"));
}

// Of two plans in one space, each guarantees a mean only for its own subject.
TEST(VerifierOfMeans, AMeanPromisesNothingForItsNeighbour) {
  Request sums = request(hosts("one", kRanks)), means = sums;
  sums.mean = false;
  means.subject = {sums.subject.end, sums.subject.end + 7};
  StepPlan step{{direct_all_reduce(sums), {}, false}, {direct_all_reduce(means), {}, false}};
  EXPECT_EQ(verify(step, Goal::kSumEverywhere), "");
  std::swap(step[0].plan.mean, step[1].plan.mean);
  EXPECT_THAT(verify(step, Goal::kSumEverywhere), HasSubstr("scaled by"));
}

// The verifier refuses to add rank 2 to the product of ranks 0 and 1.
TEST(VerifierOfOperations, AnotherOperationsNumbersAreNotJoined) {
  Request r = request(hosts("one", 3));
  r.mean = false;
  const auto some = [&](collectives::ReduceOp op, const std::vector<int>& ranks) {
    r.op = op;
    Plan plan = direct_all_reduce(r);
    change_all(plan, [&](Step& s) {
      s.from = collectives::everywhere(ranks, s.to[0].space, s.to[0].offset);
    });
    return plan;
  };
  for (const auto op : {collectives::ReduceOp::kProduct, collectives::ReduceOp::kSum}) {
    StepPlan step{{some(op, {0, 1}), {}, false},
                  {some(collectives::ReduceOp::kSum, {0, 2}), {0}, false}};
    change_all(step[0].plan, [](Step& s) { s.to.resize(1); });
    const std::string said = verify(step, Goal::kSumEverywhere);
    if (op == collectives::ReduceOp::kSum) {
      EXPECT_EQ(said, "");
    } else {
      EXPECT_THAT(said, HasSubstr("numbers that another operation has joined"));
    }
  }
}

TEST(VerifierOfOperations, OnlySumsAreScaledOrUpdatedFrom) {
  Plan plan = direct_mean();
  plan.op = collectives::ReduceOp::kProduct;
  EXPECT_THAT(verify(plan, Goal::kSumEverywhere), HasSubstr("something else than a sum"));
  Request r = request(hosts("one", kRanks));
  r.mean = false;
  r.update = true;
  plan = direct_all_reduce(r);
  plan.op = collectives::ReduceOp::kMax;
  EXPECT_THAT(verify(plan, Goal::kUpdateEverywhere), HasSubstr("something else than a sum"));
}

}  // namespace verifier_mean_test
}  // namespace lockstep::test
