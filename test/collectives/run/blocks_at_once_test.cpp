// SPDX-License-Identifier: MIT
// A rank that waits reduces as many blocks in one kernel call as its options say. On a device with
// a queue, each call is a launch and a wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "test/collectives/job.h"
#include "test/strategies/observed_device.h"

namespace lockstep::test {
namespace blocks_at_once_test {

using engine::kBlock;

constexpr std::size_t kBlocks = 200;  // per bucket; each rank owns half

// Returns the elements of each kernel call while two ranks only wait for their sums.
std::vector<std::size_t> calls_of(int blocks_at_once) {
  Request request;
  request.subject = {0, kBlocks * kBlock};
  request.host = {0, 0};
  StepPlan step;
  step.push_back({collectives::direct_all_reduce(request), {}});
  std::mutex mutex;
  std::vector<std::size_t> calls;
  JobOptions options;
  options.executor.blocks_at_once = blocks_at_once;
  options.ops = [&] {
    return observed(engine::reference_ops(DType::kFloat32),
                    [&](const engine::ReduceArguments& arguments) {
                      const std::scoped_lock lock(mutex);
                      calls.push_back(arguments.count);
                    });
  };
  Job job(std::move(step), kBlocks * kBlock, std::move(options));
  job.values<float>(1)[7] = 3;
  job.execute({0});
  EXPECT_EQ(job.values<float>(0)[7], 3);
  return calls;
}

TEST(BlocksAtOnce, AWaitReducesAsManyAsItsOptionsSay) {
  EXPECT_EQ(calls_of(1 << 20), (std::vector<std::size_t>(2, kBlocks / 2 * kBlock)));
}

TEST(BlocksAtOnce, AWaitReducesNoMoreThanItsOptionsSay) {
  EXPECT_EQ(calls_of(1), std::vector<std::size_t>(kBlocks, kBlock));
  const std::vector<std::size_t> calls = calls_of(20);
  EXPECT_LE(*std::max_element(calls.begin(), calls.end()), 20 * kBlock);
}

}  // namespace blocks_at_once_test
}  // namespace lockstep::test
