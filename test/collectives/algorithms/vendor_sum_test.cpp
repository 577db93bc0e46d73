// SPDX-License-Identifier: MIT
// A vendor's sum is a step like others: it leaves sums everywhere. It is refused unless all ranks
// have it, and an executor makes such calls in the order in which plans were started.
#include "collectives/algorithms/vendor_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/check/verifier.h"
#include "engine/base/error.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace vendor_sum_test {

using collectives::Goal;
using collectives::vendor_all_reduce;
using collectives::verify;
using testing::HasSubstr;

Request request(const std::vector<int>& host, Range subject) {
  Request request;
  request.name = "p";
  request.subject = subject;
  request.host = host;
  return request;
}

TEST(VendorSum, LeavesSumsEverywhere) {
  for (const std::vector<int>& host : {std::vector<int>{0}, {0, 1}, {0, 0, 1, 1, 1}})
    EXPECT_EQ(verify(vendor_all_reduce(request(host, {100, 5000}), "nccl"), Goal::kSumEverywhere),
              "");
}

TEST(VendorSum, AnUpdateOfEachRankMayFollow) {
  const Request r = request({0, 1, 2}, {0, 5000});
  const StepPlan step{{vendor_all_reduce(r, "nccl"), {}, false},
                      {collectives::local_update(r), {0}, false}};
  EXPECT_EQ(verify(step, Goal::kUpdateEverywhere), "");
  const StepPlan unordered{{vendor_all_reduce(r, "nccl"), {}, false},
                           {collectives::local_update(r), {}, false}};
  EXPECT_NE(verify(unordered, Goal::kUpdateEverywhere), "");
}

TEST(VendorSum, ARankWithoutItIsWaitedForAndOneOfOtherNumbersIsWrong) {
  const Plan good = vendor_all_reduce(request({0, 1, 2}, {0, 5000}), "nccl");
  Plan absent = good;
  absent.lanes[1][0].clear();
  EXPECT_THAT(verify(absent, Goal::kSumEverywhere), HasSubstr("deadlock"));
  Plan elsewhere = good;
  elsewhere.lanes[1][0][0].to[0].offset = 8;
  EXPECT_NE(verify(elsewhere, Goal::kSumEverywhere), "");
  Plan of_another = good;
  of_another.lanes[1][0][0].to[0].rank = 2;
  EXPECT_NE(verify(of_another, Goal::kSumEverywhere), "");
}

TEST(VendorSum, WhatALibraryCannotDoIsRefused) {
  for (auto change :
       {+[](Request& r) { r.update = true; }, +[](Request& r) { r.squares = true; },
        +[](Request& r) { r.mean = true; }, +[](Request& r) { r.wire = DType::kBFloat16; }}) {
    Request r = request({0, 1}, {0, 100});
    change(r);
    EXPECT_THROW(vendor_all_reduce(r, "nccl"), engine::Error);
  }
  EXPECT_TRUE(collectives::is_vendor_sum("nccl_hierarchical"));
  EXPECT_FALSE(collectives::is_vendor_sum("ring"));
}

TEST(VendorSum, CallsComeInTheOrderOfTheStartsWhateverRunsFirst) {
  StepPlan step;
  for (const std::size_t begin : {0, 1000, 2000})
    step.push_back(
        {vendor_all_reduce(request({0}, {begin, begin + 10 + begin / 1000}), "nccl"), {}, false});
  std::vector<std::size_t> counts;
  JobOptions options;
  options.executor.vendor_sum = [&](std::byte*, std::size_t count, DType) {
    counts.push_back(count);
  };
  Job job(step, 4000, options);
  Executor& executor = job.executor(0);
  for (const int stage : {2, 0, 1}) executor.start(stage, nullptr);
  for (const int stage : {0, 1, 2}) executor.wait(stage);
  EXPECT_EQ(counts, (std::vector<std::size_t>{12, 10, 11}));
  for (const int stage : {1, 2, 0}) executor.start(stage, nullptr);
  for (const int stage : {0, 1, 2}) executor.wait(stage);
  EXPECT_EQ(counts, (std::vector<std::size_t>{12, 10, 11, 11, 12, 10}));
}

}  // namespace vendor_sum_test
}  // namespace lockstep::test
