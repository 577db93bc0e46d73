// SPDX-License-Identifier: MIT
// Tests that pools agree with the float64 reference, forward and backward, on every grid. Unused
// rows are neither read nor written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/cuda/kernels/pool.cuh"
#include "engine/reference/reference_device.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/kernel_numbers.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace pool_kernels_test {

constexpr std::size_t kPlanned = 4;

PoolSizes sizes_of(const PoolSpec& s) {
  return {s.kind == PoolKind::kMax,
          unsigned(s.height),
          unsigned(s.width),
          unsigned(s.channels),
          unsigned(s.output_height()),
          unsigned(s.output_width()),
          unsigned(s.kernel_height),
          unsigned(s.kernel_width),
          unsigned(s.stride),
          unsigned(s.padding),
          s.relu};
}

std::vector<PoolSpec> specs() {
  std::vector<PoolSpec> all;
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage})
    for (const std::size_t channels : {1u, 3u, 8u, 24u}) {
      all.push_back({kind, 6, 8, channels, 2, 2, 2, 0});
      all.push_back({kind, 7, 5, channels, 2, 2, 2, 0});  // last row and column in no window
      all.push_back({kind, 7, 5, channels, 3, 3, 2, 1});
      all.push_back({kind, 5, 7, channels, 3, 2, 1, 1});  // windows overlap
      all.push_back({kind, 7, 8, channels, 2, 3, 4, 0});  // some inputs are in no window
      all.push_back({kind, 4, 3, channels, 4, 3, 1, 0});  // one window
      all.push_back({kind, 6, 8, channels, 3, 3, 2, 0});  // last row and column in no window
      all.push_back({kind, 8, 6, channels, 3, 3, 2, 2});  // first windows have one row inside
      all.push_back({kind, 5, 6, channels, 2, 2, 2, 1});
      all.push_back({kind, 1, 2, channels, 3, 3, 2, 1});
    }
  return all;
}

// Runs the kernel that CudaOps chooses.
template <class T>
void pool(LaunchShape shape, const PoolForward& a) {
  emulate(shape, [&] {
    if (!pools_by_two(a.sizes)) return run<T>(a);
    a.sizes.kernel_width == 2 ? run<T>(QuadPoolForward{a}) : run<T>(NinePoolForward{a});
  });
}
template <class T>
void pool(LaunchShape shape, const PoolBackward& a) {
  emulate(shape, [&] {
    if (!pools_by_two(a.sizes)) return run<T>(a);
    a.sizes.kernel_width == 2 ? run<T>(QuadPoolBackward{a}) : run<T>(NinePoolBackward{a});
  });
}

template <class T>
class PoolKernels : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = reference_device();
  Machine oracle_{*device_, DType::kFloat64};
};
using Types = testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(PoolKernels, Types);

// Returns images with few distinct values, so that many are equal: the first one wins.
std::vector<double> images(std::size_t used, const PoolSpec& s) {
  std::vector<double> numbers = random_batch(kPlanned, used, s.inputs(), 1);
  for (double& number : numbers) number = std::round(number * 4) / 4;
  return numbers;
}

TYPED_TEST(PoolKernels, AreThoseOfTheReference) {
  using T = TypeParam;
  for (const PoolSpec& s : specs()) {
    for (const std::size_t used : {0u, 3u}) {
      SCOPED_TRACE(testing::Message()
                   << "kind " << int(s.kind) << ", " << s.height << "x" << s.width << "x"
                   << s.channels << ", kernel " << s.kernel_height << ", " << used << " rows");
      StepState state;
      state.examples = std::int64_t(used);
      Machine& m = this->oracle_;
      const std::vector<double> x = images(used, s);
      const std::vector<double> dy = held_by<T>(random_batch(kPlanned, used, s.outputs(), 2));
      const Operand x0 = m.operand({kPlanned, s.inputs()}, x),
                    y0 = m.empty({kPlanned, s.outputs()}),
                    dy0 = m.operand({kPlanned, s.outputs()}, dy),
                    dx0 = m.empty({kPlanned, s.inputs()});
      std::vector<std::byte> workspace(m.ops().pool_workspace(s, kPlanned));
      m.ops().pool_forward(&state, s, x0.tensor, y0.tensor, workspace.data());
      m.ops().pool_backward(&state, s, dy0.tensor, dx0.tensor, workspace.data());

      const std::vector<T> images = narrowed_to<T>(x), gradients = narrowed_to<T>(dy);
      std::vector<double> first;
      for (const LaunchShape& shape : {LaunchShape{1, 1, 32}, LaunchShape{3, 2, 64}}) {
        std::vector<T> y(kPlanned * s.outputs(), T(7.0f)), dx(kPlanned * s.inputs(), T(7.0f));
        const std::size_t place = small_places(s.kernel_height * s.kernel_width)
                                      ? sizeof(PoolPlace)
                                      : sizeof(LargePoolPlace);
        std::vector<std::uint8_t> places(s.kind == PoolKind::kMax ? place * y.size() : 0, 99);
        const PoolForward a{&state, sizes_of(s), images.data(), y.data(), places.data()};
        pool<T>(shape, a);
        ASSERT_NO_FATAL_FAILURE(expect_near(y, y0.values(), used * s.outputs(), "y"));
        const PoolBackward b{&state, sizes_of(s), gradients.data(), dx.data(), places.data()};
        pool<T>(shape, b);
        ASSERT_NO_FATAL_FAILURE(expect_near(dx, dx0.values(), used * s.inputs(), "dx"));
        for (std::size_t i = used * s.outputs(); i < y.size(); ++i) ASSERT_EQ(float(y[i]), 7.0f);
        for (std::size_t i = used * s.inputs(); i < dx.size(); ++i) ASSERT_EQ(float(dx[i]), 7.0f);
        for (std::size_t i = place * used * s.outputs(); i < places.size(); ++i)
          ASSERT_EQ(places[i], 99u);
        if (first.empty()) first = as_doubles(dx);
        ASSERT_EQ(as_doubles(dx), first);
      }
    }
  }
}

// With ReLU, backward propagates only the gradients of outputs above 0. The inputs include zeros,
// negative values, and NaN, which is not above 0.
TYPED_TEST(PoolKernels, GoBackThroughAReLU) {
  using T = TypeParam;
  for (PoolSpec s : specs()) {
    if (s.kind != PoolKind::kMax) continue;
    SCOPED_TRACE(testing::Message() << s.height << "x" << s.width << "x" << s.channels
                                    << ", kernel " << s.kernel_height);
    StepState state;
    state.examples = 2;
    std::vector<T> x = narrowed_to<T>(images(2, s)), y(2 * s.outputs()), y0 = y;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (float(x[i]) < 0.5f || i % 11 == 0) x[i] = T(i % 13 == 0 ? -1.0f : 0.0f);
    x[0] = T(std::numeric_limits<float>::quiet_NaN());
    const std::vector<T> dy = narrowed_to<T>(random_numbers(y.size(), 2));
    std::vector<LargePoolPlace> places(y.size());
    const auto backward = [&](const std::vector<T>& gradients) {
      std::vector<T> dx(2 * s.inputs(), T(7.0f));
      pool<T>({1, 1, 32},
              PoolBackward{&state, sizes_of(s), gradients.data(), dx.data(), places.data()});
      return as_doubles(dx);
    };
    const auto forward = [&](std::vector<T>& to) {
      pool<T>({1, 1, 32}, PoolForward{&state, sizes_of(s), x.data(), to.data(), places.data()});
    };
    forward(y0);
    std::vector<T> passed = dy;
    for (std::size_t i = 0; i < y.size(); ++i)
      if (!(float(y0[i]) > 0)) passed[i] = T(0.0f);
    const std::vector<double> expected = backward(passed);
    s.relu = true;
    forward(y);
    EXPECT_EQ(std::memcmp(y.data(), y0.data(), y.size() * sizeof(T)), 0);
    EXPECT_EQ(backward(dy), expected);
    EXPECT_NE(passed.size(),
              std::size_t(std::ranges::count_if(passed, [](T g) { return float(g) != 0; })));
  }
}

// The first NaN wins, wherever it lies in the window and whatever the others are.
TYPED_TEST(PoolKernels, WhatIsNotANumberWins) {
  using T = TypeParam;
  for (const std::size_t channels : {1u, 8u}) {
    for (const PoolSpec& s : {PoolSpec{PoolKind::kMax, 2, 2, channels},
                              PoolSpec{PoolKind::kMax, 3, 3, channels, 3, 3, 2, 0},
                              PoolSpec{PoolKind::kMax, 2, 2, channels, 3, 3, 2, 1}}) {
      ASSERT_EQ(s.outputs(), channels);
      const std::size_t pixels = s.height * s.width;
      for (std::size_t at = 0; at < pixels; ++at) {
        StepState state;
        state.examples = 1;
        std::vector<T> x = narrowed_to<T>(random_numbers(pixels * channels, 1)), y(channels);
        for (std::size_t i = 0; i < pixels; ++i)
          x[i * channels] = T(std::numeric_limits<float>::infinity());
        x[at * channels] = T(std::numeric_limits<float>::quiet_NaN());
        x[(pixels - 1) * channels] = x[at * channels];
        std::vector<PoolPlace> places(channels, 99);
        const PoolForward a{&state, sizes_of(s), x.data(), y.data(), places.data()};
        pool<T>({1, 1, 32}, a);
        EXPECT_TRUE(std::isnan(float(y[0])));
        EXPECT_EQ(places[0], (at / s.width + s.padding) * s.kernel_width + at % s.width + s.padding)
            << s.height << "x" << s.width << "x" << channels << ", pixel " << at;
        for (std::size_t c = 1; c < channels; ++c) EXPECT_FALSE(std::isnan(float(y[c])));
      }
    }
  }
}

}  // namespace pool_kernels_test
}  // namespace lockstep::engine::cuda
