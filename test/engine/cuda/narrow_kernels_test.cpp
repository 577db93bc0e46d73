// SPDX-License-Identifier: MIT
// The kernels of gradients between 32 and 64 channels give what the float64 reference gives, read
// nothing beyond the rows in use, and give the same bits on every grid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/cuda/kernels/narrow.cuh"
#include "engine/cuda/narrow_convolution.h"
#include "engine/reference/reference_device.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/kernel_numbers.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace narrow_kernels_test {

constexpr std::size_t kPlanned = 3, kUsed = 2;

ConvolutionSpec convolution(std::size_t filters, std::size_t height, std::size_t padding) {
  return {.height = height,
          .width = 6,
          .channels = 32,
          .filters = filters,
          .kernel_height = 3,
          .kernel_width = 3,
          .padding = padding};
}

// Numbers of a batch whose last row is not in use: there it has NaN.
template <class T>
std::vector<double> batch(std::size_t columns, std::uint64_t seed) {
  std::vector<double> all = held_by<T>(random_batch(kPlanned, kUsed, columns, seed));
  std::fill(all.begin() + long(kUsed * columns), all.end(), std::nan(""));
  return all;
}

template <class T>
class NarrowKernels : public testing::Test {};
using Types = testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(NarrowKernels, Types);

TYPED_TEST(NarrowKernels, GradientsAreThoseOfTheReferenceOnEveryGrid) {
  using T = TypeParam;
  const std::unique_ptr<Device> device = reference_device();
  Machine m(*device, DType::kFloat64);
  StepState state;
  state.examples = kUsed;
  // The last one has images of two bands, of which the second is shorter.
  for (const ConvolutionSpec& s :
       {convolution(64, 5, 0), convolution(32, 4, 2), convolution(64, 43, 1)}) {
    SCOPED_TRACE(testing::Message() << s.height << " rows, " << s.filters << " filters");
    ASSERT_TRUE(is_narrow(s, DType::kBFloat16));
    const NarrowSizes sizes = narrow_sizes(s);
    const std::vector<double> x = batch<T>(s.inputs(), 1), dy = batch<T>(s.outputs(), 2);
    const Operand x0 = m.operand({kPlanned, s.inputs()}, x),
                  dy0 = m.operand({kPlanned, s.outputs()}, dy),
                  w0 = m.operand({s.weights()}, random_numbers(s.weights(), 3)),
                  dw0 = m.empty({s.weights()}), db0 = m.empty({s.filters});
    m.ops().convolution_backward(&state, s, x0.tensor, dy0.tensor, dy0.tensor, w0.tensor, {},
                                 dw0.tensor, db0.tensor, false);
    const std::vector<T> images = narrowed_to<T>(x), of_outputs = narrowed_to<T>(dy);
    for (const unsigned chunks : {1u, 5u}) {  // of several bands, or of none
      if (chunks > 1 && sizes.bands() > 1) continue;
      const bool accumulate = chunks == 5;
      std::vector<double> of_weights = dw0.values(), of_biases = db0.values(), first;
      for (double& sum : of_weights) sum += accumulate ? 2 : 0;
      for (double& sum : of_biases) sum += accumulate ? 2 : 0;
      for (const unsigned blocks : {1u, 3u}) {
        if (blocks > chunks) continue;
        std::vector<float> sums(chunks * sizes.sums(), NAN);
        std::vector<T> dw(s.weights(), T(2.0f)), db(s.filters, T(2.0f));
        const NarrowGradient add{&state, sizes,      images.data(), of_outputs.data(),
                                 chunks, sums.data()};
        const NarrowGradientEnd end{sizes, chunks, sums.data(), dw.data(), db.data(), accumulate};
        emulate({blocks, 1, sizes.threads(), 2 * sizes.band_bytes()}, [&] { run<T>(add); });
        emulate({(sizes.sums() + kNarrowEndValues - 1) / kNarrowEndValues, 1, kNarrowEndThreads},
                [&] { run<T>(end); });
        ASSERT_NO_FATAL_FAILURE(expect_near(dw, of_weights, s.weights(), "dw"));
        ASSERT_NO_FATAL_FAILURE(expect_near(db, of_biases, s.filters, "db"));
        if (first.empty()) first = as_doubles(dw);
        ASSERT_EQ(as_doubles(dw), first);
      }
    }
  }
}

TEST(NarrowConvolution, IsOfSomeSizesAlone) {
  const ConvolutionSpec narrow = convolution(64, 5, 1);
  EXPECT_TRUE(is_narrow(narrow, DType::kFloat16));
  EXPECT_FALSE(is_narrow(narrow, DType::kFloat32));
  const auto refused = [&](auto change) {
    ConvolutionSpec s = narrow;
    change(s);
    return !is_narrow(s, DType::kFloat16);
  };
  EXPECT_TRUE(refused([](auto& s) { s.channels = 64; }));
  EXPECT_TRUE(refused([](auto& s) { s.filters = 16; }));
  EXPECT_TRUE(refused([](auto& s) { s.stride = 2; }));
  EXPECT_TRUE(refused([](auto& s) { s.kernel_width = 2; }));
  EXPECT_TRUE(refused([](auto& s) { s.width = 400; }));
}

}  // namespace narrow_kernels_test
}  // namespace lockstep::engine::cuda
