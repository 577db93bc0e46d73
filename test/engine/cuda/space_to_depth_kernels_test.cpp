// SPDX-License-Identifier: MIT
// Tests convolutions after space-to-depth for each padding and odd and even sizes. The outputs and
// the gradients of weights equal those of the original convolution.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cuda/kernels/space_to_depth.cuh"
#include "engine/cuda/space_to_depth_convolution.h"
#include "engine/reference/reference_device.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/kernel_numbers.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace space_to_depth_kernels_test {

constexpr std::size_t kPlanned = 3, kUsed = 2;

std::vector<ConvolutionSpec> convolutions() {
  std::vector<ConvolutionSpec> all;
  for (const std::size_t channels : {1u, 3u, 4u})
    for (const std::size_t kernel : {3u, 4u, 7u})
      for (const std::size_t padding : {0u, 1u, 3u})
        all.push_back({.height = 9 + channels,
                       .width = 8,
                       .channels = channels,
                       .filters = 5,
                       .kernel_height = kernel,
                       .kernel_width = kernel,
                       .stride = 2,
                       .padding = padding,
                       .bias = false});
  return all;
}

template <class T>
class SpaceToDepthKernels : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = reference_device();
  Machine oracle_{*device_, DType::kFloat64};
};
using Types = testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(SpaceToDepthKernels, Types);

TYPED_TEST(SpaceToDepthKernels, AConvolutionAfterItHasTheSameOutputs) {
  using T = TypeParam;
  Machine& m = this->oracle_;
  StepState state;
  state.examples = kUsed;
  for (const ConvolutionSpec& s : convolutions()) {
    SCOPED_TRACE(testing::Message() << s.height << " x " << s.width << " x " << s.channels
                                    << ", kernel " << s.kernel_height << ", padding " << s.padding);
    ASSERT_TRUE(uses_space_to_depth(s));
    const ConvolutionSpec to = space_to_depth(s);
    ASSERT_EQ(to.output_height(), s.output_height());
    ASSERT_EQ(to.output_width(), s.output_width());
    const std::vector<double> x = held_by<T>(random_batch(kPlanned, kUsed, s.inputs(), 1));
    const std::vector<double> w = held_by<T>(random_numbers(s.weights(), 2));
    const std::vector<T> images = narrowed_to<T>(x), weights = narrowed_to<T>(w);
    const Operand x0 = m.operand({kPlanned, s.inputs()}, x), w0 = m.operand({s.weights()}, w),
                  y0 = m.empty({kPlanned, s.outputs()}), y1 = m.empty({kPlanned, s.outputs()});
    m.ops().convolution_forward(&state, s, x0.tensor, w0.tensor, {}, y0.tensor);
    for (const LaunchShape& shape : {LaunchShape{1, 1, 32}, LaunchShape{3, 1, 64}}) {
      struct alignas(16) Line {
        T values[8];
      };
      std::vector<Line> lines(kPlanned * to.inputs() / 8);
      T* const there = lines.front().values;
      std::fill_n(there, kPlanned * to.inputs(), T(float(NAN)));
      std::vector<T> deep_weights(to.weights(), T(float(NAN)));
      const SpaceToDepthImages a{&state, space_to_depth_sizes(s), kPlanned, images.data(), there};
      const SpaceToDepthWeights b{space_to_depth_sizes(s), weights.data(), deep_weights.data()};
      emulate(shape, [&] { run<T>(a); });
      emulate(shape, [&] { run<T>(b); });
      const std::vector<T> made(there, there + kPlanned * to.inputs());
      for (std::size_t i = kUsed * to.inputs(); i < made.size(); ++i) ASSERT_EQ(float(made[i]), 0);
      const Operand x1 = m.operand({kPlanned, to.inputs()}, as_doubles(made)),
                    w1 = m.operand({to.weights()}, as_doubles(deep_weights));
      m.ops().convolution_forward(&state, to, x1.tensor, w1.tensor, {}, y1.tensor);
      const std::vector<double> expected = y0.values(), found = y1.values();
      for (std::size_t i = 0; i < kUsed * s.outputs(); ++i)
        ASSERT_NEAR(found[i], expected[i], 1e-12) << i;
    }
  }
}

TYPED_TEST(SpaceToDepthKernels, AGradientGoesBackToWhereItsWeightCameFrom) {
  using T = TypeParam;
  for (const ConvolutionSpec& s : convolutions()) {
    const std::vector<double> w = held_by<T>(random_numbers(s.weights(), 1));
    const std::vector<T> weights = narrowed_to<T>(w);
    std::vector<T> there(space_to_depth(s).weights()), back(s.weights(), T(2.0f));
    const SpaceToDepthWeights a{space_to_depth_sizes(s), weights.data(), there.data()};
    emulate({2, 1, 32}, [&] { run<T>(a); });
    const DepthToSpaceGradient b{space_to_depth_sizes(s), there.data(), back.data()};
    emulate({3, 1, 64}, [&] { run<T>(b); });
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(float(back[i]), float(w[i])) << i;
  }
}

TEST(SpaceToDepthConvolution, IsThatOfStrideTwoOverFewChannels) {
  ConvolutionSpec s{.height = 224,
                    .width = 224,
                    .channels = 3,
                    .filters = 64,
                    .kernel_height = 7,
                    .kernel_width = 7,
                    .stride = 2,
                    .padding = 3};
  ASSERT_TRUE(uses_space_to_depth(s));
  const ConvolutionSpec to = space_to_depth(s);
  EXPECT_EQ(to.height, 115u);
  EXPECT_EQ(to.width, 115u);
  EXPECT_EQ(to.channels, 16u);
  EXPECT_EQ(to.kernel_height, 4u);
  EXPECT_EQ(to.stride, 1u);
  EXPECT_EQ(to.padding, 0u);
  s.channels = 5;
  EXPECT_FALSE(uses_space_to_depth(s));
  s.channels = 3, s.stride = 1;
  EXPECT_FALSE(uses_space_to_depth(s));
  s.stride = 2, s.kernel_height = s.kernel_width = 1;
  EXPECT_FALSE(uses_space_to_depth(s));
}

}  // namespace space_to_depth_kernels_test
}  // namespace lockstep::engine::cuda
