// SPDX-License-Identifier: MIT
#include "engine/cuda/kernels/pointwise.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/cuda/kernels/dropout.cuh"
#include "engine/ops/definitions.h"
#include "test/engine/cuda/kernel_batch.h"

namespace lockstep::engine::cuda {
namespace pointwise_kernels_test {

template <class T>
class PointwiseKernels : public testing::Test {};
TYPED_TEST_SUITE(PointwiseKernels, ElementTypes);

// Runs a kernel for all sizes and grids, on aligned and unaligned addresses, out of place and in
// place of its first operand. `make` returns the arguments, `expected` the numbers.
template <class T, class Make, class Expected>
void check_kernel(Make make, Expected expected) {
  for (const BatchSize& size : kSizes) {
    const StepState state = state_of(size);
    for (const std::size_t shift : {0, 1}) {
      std::optional<Batch<T>> before;
      for (const LaunchShape& grid : kGrids) {
        Batch<T> a(size, shift, numbers(1)), b(size, shift, numbers(2)), y(size, shift);
        const auto apart = make(&state, a.data(), b.data(), y.data(), size.columns);
        emulate(grid, [&] { run<T>(apart); });
        for (std::size_t i = 0; i < y.used(); ++i) {
          const double wanted = expected(a[i], b[i]);
          ASSERT_NEAR(y[i], wanted, 4 * half_step<T>() * std::abs(wanted) + 1e-6) << i;
        }
        EXPECT_TRUE(y.rest_is_untouched());
        EXPECT_TRUE(!before || y.same_bits(*before));
        before = y;
        const auto in_place = make(&state, a.data(), b.data(), a.data(), size.columns);
        emulate(grid, [&] { run<T>(in_place); });
        EXPECT_TRUE(a.same_bits(y));
      }
    }
  }
}

TYPED_TEST(PointwiseKernels, ReluKeepsWhatIsNotNegative) {
  check_kernel<TypeParam>(
      [](auto state, auto* a, auto*, auto* y, auto columns) {
        return ReluForward{state, a, y, columns};
      },
      [](double a, double) { return a < 0 ? 0 : a; });
}

TYPED_TEST(PointwiseKernels, ReluPassesNoNumbersOn) {
  StepState state;
  state.examples = 1;
  TypeParam x[2] = {TypeParam(float(NAN)), TypeParam(-INFINITY)}, y[2] = {};
  emulate({}, [&] { run<TypeParam>(ReluForward{&state, x, y, 2}); });
  EXPECT_TRUE(std::isnan(float(y[0])));
  EXPECT_EQ(float(y[1]), 0);
}

TYPED_TEST(PointwiseKernels, GradientOfReluPassesWhereTheOutputIsPositive) {
  check_kernel<TypeParam>(
      [](auto state, auto* a, auto* b, auto* y, auto columns) {
        return ReluGradient{state, a, b, y, columns};
      },
      [](double y, double dy) { return y > 0 ? dy : 0; });
}

TYPED_TEST(PointwiseKernels, TanhIsTheHyperbolicTangent) {
  check_kernel<TypeParam>(
      [](auto state, auto* a, auto*, auto* y, auto columns) {
        return TanhForward{state, a, y, columns};
      },
      [](double a, double) { return std::tanh(a); });
}

TYPED_TEST(PointwiseKernels, GradientOfTanhFollowsFromTheOutput) {
  check_kernel<TypeParam>(
      [](auto state, auto* a, auto* b, auto* y, auto columns) {
        return TanhGradient{state, a, b, y, columns};
      },
      [](double y, double dy) { return dy * (1 - y * y); });
}

TYPED_TEST(PointwiseKernels, AddAdds) {
  check_kernel<TypeParam>(
      [](auto state, auto* a, auto* b, auto* y, auto columns) {
        return Add{state, a, b, y, columns};
      },
      [](double a, double b) { return a + b; });
}

// The results equal those of the CPU bit for bit.
TYPED_TEST(PointwiseKernels, DropoutDropsTheUnitsThatTheDefinitionSays) {
  constexpr std::uint64_t kKey = 0x123456789abcdef0;
  constexpr double kRate = 0.3;
  for (const BatchSize& size : kSizes) {
    StepState state = state_of(size);
    state.step = 70'000'000'001;
    std::vector<std::int64_t> ids(size.planned);
    for (std::size_t r = 0; r < ids.size(); ++r) ids[r] = std::int64_t(r * 5'000'000'000 + 3);
    state.ids = ids.data();
    for (const std::size_t shift : {0, 1}) {
      Batch<TypeParam> x(size, shift, numbers(3)), wanted(size, shift);
      for (std::size_t i = 0; i < x.used(); ++i) {
        const std::size_t row = i / size.columns, unit = i % size.columns;
        const auto bits = dropout_bits(kKey, ids[row], state.step, unit / 4);
        const bool keeps = dropout_keeps(bits[unit % 4], kRate);
        wanted.data()[i] = TypeParam(keeps ? float(x.data()[i]) * float(1 / (1 - kRate)) : 0.0f);
      }
      for (const LaunchShape& grid : kGrids) {
        Batch<TypeParam> y(size, shift), in_place = x;
        const Dropout apart{&state, x.data(), y.data(), size.columns, kRate, kKey};
        emulate(grid, [&] { run<TypeParam>(apart); });
        EXPECT_TRUE(y.same_bits(wanted));
        const Dropout same{&state, in_place.data(), in_place.data(), size.columns, kRate, kKey};
        emulate(grid, [&] { run<TypeParam>(same); });
        EXPECT_TRUE(in_place.same_bits(wanted));
      }
    }
  }
}

TYPED_TEST(PointwiseKernels, ConvertRoundsToTheNearest) {
  const std::vector<float> from{0.1f, -0.0f, 1.00390625f, 3e38f, -65519, 65520, 1e-8f, -7};
  for (const LaunchShape& grid : kGrids) {
    std::vector<TypeParam> to(from.size());
    emulate(grid, [&] { run<TypeParam>(Convert{from.data(), to.data(), from.size()}); });
    for (std::size_t i = 0; i < from.size(); ++i) {
      const TypeParam wanted(from[i]);
      EXPECT_EQ(std::memcmp(&to[i], &wanted, sizeof wanted), 0) << i;
    }
  }
}

}  // namespace pointwise_kernels_test
}  // namespace lockstep::engine::cuda
