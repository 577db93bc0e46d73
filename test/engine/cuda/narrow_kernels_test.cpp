// SPDX-License-Identifier: MIT
// Tests the kernels of convolutions from 32 channels to 32 or 64 filters. They agree with the
// float64 reference whatever unused rows contain, and gradients have the same bits on every grid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/cuda/kernels/narrow.cuh"
#include "engine/cuda/kernels/narrow_group_gradient.cuh"
#include "engine/cuda/kernels/narrow_outputs.cuh"
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

// Returns a batch whose last row is not in use and holds NaN.
template <class T>
std::vector<double> batch(std::size_t columns, std::uint64_t seed) {
  std::vector<double> all = held_by<T>(random_batch(kPlanned, kUsed, columns, seed));
  std::fill(all.begin() + long(kUsed * columns), all.end(), std::nan(""));
  return all;
}

// Holds the inputs of gradients and the reference's results.
template <class T>
struct Gradients {
  std::vector<T> x, dy;
  std::vector<double> dw, db;

  Gradients(Machine& m, const StepState& state, const ConvolutionSpec& s) {
    const std::vector<double> images = batch<T>(s.inputs(), 1), outputs = batch<T>(s.outputs(), 2);
    x = narrowed_to<T>(images), dy = narrowed_to<T>(outputs);
    const Operand x0 = m.operand({kPlanned, s.inputs()}, images),
                  dy0 = m.operand({kPlanned, s.outputs()}, outputs),
                  w0 = m.operand({s.weights()}, random_numbers(s.weights(), 3)),
                  dw0 = m.empty({s.weights()}), db0 = m.empty({s.filters});
    m.ops().convolution_backward(&state, s, x0.tensor, dy0.tensor, dy0.tensor, w0.tensor, {},
                                 dw0.tensor, db0.tensor, false);
    dw = dw0.values(), db = db0.values();
  }
};

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
  // The last shape has images of two bands, the second of which is shorter.
  for (const ConvolutionSpec& s :
       {convolution(64, 5, 0), convolution(32, 4, 2), convolution(64, 43, 1)}) {
    SCOPED_TRACE(testing::Message() << s.height << " rows, " << s.filters << " filters");
    ASSERT_TRUE(is_narrow(s, DType::kBFloat16));
    const NarrowSizes sizes = narrow_sizes(s);
    const Gradients<T> right(m, state, s);
    const std::vector<T>&images = right.x, &of_outputs = right.dy;
    for (const unsigned chunks : {1u, 5u}) {  // of several bands, or of none
      if (chunks > 1 && sizes.bands() > 1) continue;
      const bool accumulate = chunks == 5;
      std::vector<double> of_weights = right.dw, of_biases = right.db, first;
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

TYPED_TEST(NarrowKernels, GradientsByGroupsOfWarpsAreThoseOfTheReferenceOnEveryGrid) {
  using T = TypeParam;
  const std::unique_ptr<Device> device = reference_device();
  Machine m(*device, DType::kFloat64);
  StepState state;
  state.examples = kUsed;
  for (const ConvolutionSpec& s :
       {convolution(64, 15, 0), convolution(64, 4, 2), convolution(64, 5, 1)}) {
    SCOPED_TRACE(testing::Message() << s.height << " rows");
    const NarrowSizes of_end = narrow_sizes(s);
    const Gradients<T> right(m, state, s);
    const std::vector<T>&images = right.x, &of_outputs = right.dy;
    NarrowGroupSizes sizes = narrow_group_sizes(s);
    ASSERT_EQ(sizes.bands(), 1u);
    for (const unsigned band : {sizes.band, 2u}) {
      sizes.band = band;
      const unsigned chunks = band == 2 ? 5 : 2;
      std::vector<double> first;
      for (const unsigned blocks : {1u, chunks}) {
        std::vector<float> sums(chunks * of_end.sums(), NAN);
        std::vector<T> dw(s.weights()), db(s.filters);
        const NarrowGroupGradient add{&state, sizes,      images.data(), of_outputs.data(),
                                      chunks, sums.data()};
        const NarrowGradientEnd end{of_end, chunks, sums.data(), dw.data(), db.data(), false};
        emulate({blocks, 1, kNarrowGroupThreads, sizes.bytes()}, [&] { run<T>(add); });
        emulate({(of_end.sums() + kNarrowEndValues - 1) / kNarrowEndValues, 1, kNarrowEndThreads},
                [&] { run<T>(end); });
        ASSERT_NO_FATAL_FAILURE(expect_near(dw, right.dw, s.weights(), "dw"));
        ASSERT_NO_FATAL_FAILURE(expect_near(db, right.db, s.filters, "db"));
        if (first.empty()) first = as_doubles(dw);
        ASSERT_EQ(as_doubles(dw), first);
      }
    }
  }
}

TYPED_TEST(NarrowKernels, OutputsAndGradientsOfDataAreThoseOfTheReferenceOnEveryGrid) {
  using T = TypeParam;
  const std::unique_ptr<Device> device = reference_device();
  Machine m(*device, DType::kFloat64);
  StepState state;
  state.examples = kUsed;
  for (ConvolutionSpec s : {convolution(64, 15, 0), convolution(32, 4, 2), convolution(64, 5, 1)}) {
    SCOPED_TRACE(testing::Message() << s.height << " rows, " << s.filters << " filters");
    s.bias = s.padding != 2;
    if (s.bias) s.activation = Activation::kRelu;
    const std::vector<double> x = batch<T>(s.inputs(), 1), dy = batch<T>(s.outputs(), 2),
                              w = held_by<T>(random_numbers(s.weights(), 3)),
                              b = held_by<T>(random_numbers(s.filters, 4));
    const Operand x0 = m.operand({kPlanned, s.inputs()}, x),
                  dy0 = m.operand({kPlanned, s.outputs()}, dy), w0 = m.operand({s.weights()}, w),
                  b0 = m.operand({s.filters}, b), y0 = m.empty({kPlanned, s.outputs()}),
                  dx0 = m.empty({kPlanned, s.inputs()});
    m.ops().convolution_forward(&state, s, x0.tensor, w0.tensor, s.bias ? b0.tensor : Tensor{},
                                y0.tensor);
    ConvolutionSpec bare = s;
    bare.activation = Activation::kNone;
    m.ops().convolution_backward(&state, bare, x0.tensor, dy0.tensor, dy0.tensor, w0.tensor,
                                 dx0.tensor, {}, {}, false);
    const std::vector<T> weights = narrowed_to<T>(w), biases = narrowed_to<T>(b);
    for (const bool turned : {false, true}) {
      const std::vector<T> from = narrowed_to<T>(turned ? dy : x);
      const std::size_t columns = turned ? s.inputs() : s.outputs();
      NarrowOutputSizes sizes = narrow_output_sizes(s, turned);
      ASSERT_EQ(sizes.bands(), 1u);
      for (const unsigned band : {sizes.band, 2u}) {
        sizes.band = band;
        for (const unsigned blocks : {1u, 3u}) {
          std::vector<T> to(kPlanned * columns, T(-8.0f));
          const bool bias = s.bias && !turned;
          const NarrowOutputs call{
              &state,    sizes,  from.data(), weights.data(), bias ? biases.data() : nullptr,
              to.data(), turned, bias};
          emulate({blocks, 1, kNarrowOutputThreads, sizes.bytes(turned)}, [&] { run<T>(call); });
          ASSERT_NO_FATAL_FAILURE(
              expect_near(to, (turned ? dx0 : y0).values(), kUsed * columns, turned ? "dx" : "y"));
          ASSERT_TRUE(std::all_of(to.begin() + long(kUsed * columns), to.end(),
                                  [](T value) { return float(value) == -8; }));
        }
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

TEST(NarrowConvolution, IsOnPlanesOfOneKindOfGpuAlone) {
  const auto has = [](const ConvolutionSpec& s, int capability = 90,
                      DType dtype = DType::kFloat16) {
    const bool outputs = has_narrow_outputs(s, dtype, capability);
    if (s.filters == 64) {
      EXPECT_EQ(has_narrow_group_gradient(s, dtype, capability), outputs);
    }
    return outputs;
  };
  EXPECT_TRUE(has(convolution(64, 5, 1)));
  EXPECT_TRUE(has(convolution(32, 5, 1)));
  EXPECT_FALSE(has_narrow_group_gradient(convolution(32, 5, 1), DType::kFloat16, 90));
  for (const int capability : {80, 89, 100}) EXPECT_FALSE(has(convolution(64, 5, 1), capability));
  EXPECT_FALSE(has(convolution(64, 5, 1), 90, DType::kFloat32));
  EXPECT_FALSE(has(convolution(64, 5, 3)));
  ConvolutionSpec thin = convolution(64, 5, 1);
  thin.width = 1;
  EXPECT_FALSE(has(thin));
  thin.width = 3, thin.padding = 0;  // outputs of one column
  EXPECT_FALSE(has(thin));
  ConvolutionSpec wide = convolution(64, 8192, 1);
  wide.width = 300;
  EXPECT_TRUE(has(wide));
  for (const bool turned : {false, true}) {
    const NarrowOutputSizes sizes = narrow_output_sizes(wide, turned);
    EXPECT_GT(sizes.bands(), 1u);
    EXPECT_LE(sizes.bytes(turned), kMostPlaneBytes);
    EXPECT_LE(sizes.output_height, sizes.bands() * sizes.band);
  }
  EXPECT_LE(narrow_group_sizes(wide).bytes(), kMostPlaneBytes);
  wide.width = 8192;
  EXPECT_FALSE(has(wide));
  EXPECT_EQ(narrow_sizes(wide).band, 0u);
}

TEST(NarrowConvolution, FewImagesAreCutIntoMoreBands) {
  const ConvolutionSpec s = convolution(64, 26, 0);
  EXPECT_EQ(narrow_output_sizes(s, false, 128, 132).bands(), 1u);
  EXPECT_EQ(narrow_output_sizes(s, false, 64, 132).bands(), 2u);
  EXPECT_EQ(narrow_output_sizes(s, false, 1, 132).band, 3u);
}

}  // namespace narrow_kernels_test
}  // namespace lockstep::engine::cuda
