// SPDX-License-Identifier: MIT
// Tests the kernels of convolutions with few channels. They agree with the float64 reference,
// access only rows in use, and give the same bits on every grid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/cuda/few_channel_convolution.h"
#include "engine/cuda/kernels/few_channel.cuh"
#include "engine/reference/reference_device.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/kernel_numbers.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace few_channel_kernels_test {

constexpr std::size_t kPlanned = 4, kUsed = 3;
const LaunchShape kShapes[] = {{1, 1, kLineThreads}, {1, 7, kLineThreads}, {2, 3, kLineThreads}};

std::vector<ConvolutionSpec> convolutions() {
  std::vector<ConvolutionSpec> all;
  for (const std::size_t channels : {1u, 3u})
    for (const std::size_t kernel : {1u, 2u, 3u})
      for (const std::size_t stride : {1u, 2u})
        for (const bool relu : {false, true})
          all.push_back({.height = 7,
                         .width = 6,
                         .channels = channels,
                         .filters = relu ? 8u : 40u,
                         .kernel_height = kernel,
                         .kernel_width = kernel,
                         .stride = stride,
                         .padding = kernel / 2,
                         .bias = true,
                         .activation = relu ? Activation::kRelu : Activation::kNone});
  // The images have two bands, the second of which is shorter.
  all.push_back({.height = 21,
                 .width = 20,
                 .channels = 1,
                 .filters = 8,
                 .kernel_height = 3,
                 .kernel_width = 3,
                 .padding = 1,
                 .bias = true,
                 .activation = Activation::kRelu});
  return all;
}

template <class T>
class FewChannelKernels : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = reference_device();
  Machine oracle_{*device_, DType::kFloat64};
};
using Types = testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(FewChannelKernels, Types);

TYPED_TEST(FewChannelKernels, OutputsAndGradientsAreThoseOfTheReferenceOnEveryGrid) {
  using T = TypeParam;
  Machine& m = this->oracle_;
  StepState state;
  state.examples = kUsed;
  for (const ConvolutionSpec& s : convolutions()) {
    SCOPED_TRACE(testing::Message() << s.channels << " channels, kernel " << s.kernel_height
                                    << ", stride " << s.stride << ", " << s.filters << " filters");
    ASSERT_TRUE(has_few_channels(s));
    const bool relu = s.activation == Activation::kRelu;
    const FewChannelSizes sizes = few_channel_sizes(s);
    const std::vector<double> x = held_by<T>(random_batch(kPlanned, kUsed, s.inputs(), 1));
    const std::vector<double> dy = held_by<T>(random_batch(kPlanned, kUsed, s.outputs(), 2));
    const std::vector<double> w = held_by<T>(random_numbers(s.weights(), 3));
    const std::vector<double> b = held_by<T>(random_numbers(s.filters, 4));
    const Operand x0 = m.operand({kPlanned, s.inputs()}, x), w0 = m.operand({s.weights()}, w),
                  b0 = m.operand({s.filters}, b), y0 = m.empty({kPlanned, s.outputs()});
    m.ops().convolution_forward(&state, s, x0.tensor, w0.tensor, b0.tensor, y0.tensor);
    const std::vector<T> images = narrowed_to<T>(x), weights = narrowed_to<T>(w),
                         biases = narrowed_to<T>(b), of_outputs = narrowed_to<T>(dy);
    std::vector<double> first;
    for (const LaunchShape& shape : kShapes) {
      std::vector<T> y(kPlanned * s.outputs(), T(7.0f));
      const FewChannelForward a{&state,        sizes,    images.data(), weights.data(),
                                biases.data(), y.data(), relu};
      emulate(shape, [&] { run<T>(a); });
      ASSERT_NO_FATAL_FAILURE(expect_near(y, y0.values(), kUsed * s.outputs(), "y"));
      for (std::size_t i = kUsed * s.outputs(); i < y.size(); ++i) ASSERT_EQ(float(y[i]), 7.0f);
      if (first.empty()) first = as_doubles(y);
      ASSERT_EQ(as_doubles(y), first);
    }
    // The reference gets the outputs as stored in T, so both ReLUs let the same gradients pass.
    std::vector<double> past = first;
    std::fill(past.begin() + long(kUsed * s.outputs()), past.end(), std::nan(""));
    const std::vector<T> ys = narrowed_to<T>(past);
    const Operand y1 = m.operand({kPlanned, s.outputs()}, past),
                  dy0 = m.operand({kPlanned, s.outputs()}, dy), dw0 = m.empty({s.weights()}),
                  db0 = m.empty({s.filters});
    m.ops().convolution_backward(&state, s, x0.tensor, y1.tensor, dy0.tensor, w0.tensor, {},
                                 dw0.tensor, db0.tensor, false);
    for (const bool accumulate : {false, true}) {
      std::vector<double> of_weights = dw0.values(), of_biases = db0.values();
      for (double& sum : of_weights) sum += accumulate ? 2 : 0;
      for (double& sum : of_biases) sum += accumulate ? 2 : 0;
      first.clear();
      for (const LaunchShape& shape : kShapes) {
        std::vector<T> dw(s.weights(), T(2.0f)), db(s.filters, T(2.0f));
        for (unsigned tap = 0; tap < sizes.taps(); tap += kFewChannelTaps) {
          constexpr unsigned kChunks = 2;
          std::vector<double> sums(kChunks * (kFewChannelTaps + 1) * s.filters, std::nan(""));
          std::vector<std::uint32_t> tickets(sum_tiles(s.filters / kFewChannelWidth));
          const FewChannelGradients a{&state,
                                      sizes,
                                      tap,
                                      images.data(),
                                      relu ? ys.data() : nullptr,
                                      of_outputs.data(),
                                      {kChunks, sums.data(), tickets.data()},
                                      dw.data(),
                                      tap == 0 ? db.data() : nullptr,
                                      accumulate};
          emulate(shape, [&] { run<T>(a); });
          ASSERT_EQ(std::ranges::count(tickets, 0u), long(tickets.size()));
        }
        ASSERT_NO_FATAL_FAILURE(expect_near(dw, of_weights, dw.size(), "dw"));
        ASSERT_NO_FATAL_FAILURE(expect_near(db, of_biases, db.size(), "db"));
        std::vector<double> all = as_doubles(dw);
        for (const double sum : as_doubles(db)) all.push_back(sum);
        if (first.empty()) first = all;
        ASSERT_EQ(all, first);
      }
    }
  }
}

TYPED_TEST(FewChannelKernels, WhatIsNotANumberPassesReLU) {
  using T = TypeParam;
  StepState state;
  state.examples = 1;
  const ConvolutionSpec s{.height = 2, .width = 1, .channels = 1, .filters = 8};
  const std::vector<T> x = {T(1.0f), T(float(NAN))}, w(8, T(-1.0f));
  std::vector<T> y(16, T(5.0f));
  const FewChannelForward a{&state, few_channel_sizes(s), x.data(), w.data(), nullptr, y.data(),
                            true};
  emulate({1, 1, kLineThreads}, [&] { run<T>(a); });
  EXPECT_EQ(float(y[0]), 0);
  EXPECT_TRUE(std::isnan(float(y[8])));
}

TEST(FewChannelConvolution, SeesFewNumbers) {
  ConvolutionSpec s{.height = 28,
                    .width = 28,
                    .channels = 1,
                    .filters = 32,
                    .kernel_height = 3,
                    .kernel_width = 3};
  EXPECT_TRUE(has_few_channels(s));
  s.channels = 3;
  EXPECT_TRUE(has_few_channels(s));
  s.channels = 4;
  EXPECT_FALSE(has_few_channels(s));
  s.channels = 1, s.filters = 6;
  EXPECT_FALSE(has_few_channels(s));
  s.filters = 136;
  EXPECT_FALSE(has_few_channels(s));
  s.filters = 32, s.width = kMostFewChannelOutputs + 2;
  EXPECT_TRUE(has_few_channels(s));
  ++s.width;
  EXPECT_FALSE(has_few_channels(s));
  s.width = 40, s.padding = kMostFewChannelPixels / 6, s.stride = 4;
  EXPECT_FALSE(has_few_channels(s));
}

}  // namespace few_channel_kernels_test
}  // namespace lockstep::engine::cuda
