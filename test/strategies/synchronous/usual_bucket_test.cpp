// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "engine/nn/graph.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep {
namespace usual_bucket_test {

// An additional queued sum costs little, and in a small model only the last bucket is not hidden.
TEST(UsualBucket, IsAnEighthOfTheGradientsWhereSumsAreQueuedOnOneHost) {
  const auto ops = engine::reference_ops(engine::DType::kFloat64);
  const auto bucket_of = [&](std::size_t outputs, bool queued, const std::vector<int>& host) {
    engine::GraphSpec spec("m", {512});
    spec.then("dense", engine::dense(outputs, {.bias = false}));
    spec.set_loss(engine::mean_squared_error());
    const engine::Graph graph(spec, *ops, 1);
    strategies::DesignInput input;
    input.graph = &graph;
    input.host = host;
    input.queued = queued;
    return strategies::design_step(input, {}).bucket_bytes;
  };
  constexpr std::size_t kMiB = std::size_t(1) << 20;
  EXPECT_EQ(bucket_of(2048, true, {0, 0}), kMiB);  // of gradients of 8 MiB
  EXPECT_EQ(bucket_of(2048, true, {0}), kMiB);
  EXPECT_EQ(bucket_of(16, true, {0, 0}), kMiB / 2);
  EXPECT_EQ(bucket_of(16384, true, {0, 0}), 4 * kMiB);
  EXPECT_EQ(bucket_of(2048, false, {0, 0}), 4 * kMiB);
  EXPECT_EQ(bucket_of(2048, true, {0, 1}), 4 * kMiB);
}

}  // namespace usual_bucket_test
}  // namespace lockstep
