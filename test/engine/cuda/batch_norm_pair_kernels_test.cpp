// SPDX-License-Identifier: MIT
// Tests the kernels of two batch norms whose outputs are added, on every grid. Forward agrees with
// the float64 reference, backward with two kernels of a single batch norm.
#include "engine/cuda/kernels/batch_norm_pair.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "engine/reference/reference_device.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/kernel_numbers.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace batch_norm_pair_kernels_test {

constexpr std::size_t kPlanned = 4;
const LaunchShape kShapes[] = {{1, 1, kLineThreads}, {3, 2, kLineThreads}, {2, 40, kLineThreads}};

// Holds the operands of a pair: x, scale, shift, and moments of each batch norm, and one dy and
// mask.
template <class T>
struct Operands {
  std::size_t channels, positions, used;
  BatchNormSpec spec{positions, channels, 1e-5, Activation::kRelu};
  StepState state;
  std::vector<T> x[2], scale[2], shift[2], dy;
  std::vector<double> moments[2], sums[2];
  std::vector<std::uint8_t> mask;

  Operands(std::size_t c, std::size_t p, std::size_t u) : channels(c), positions(p), used(u) {
    state.examples = std::int64_t(used);
    std::uint64_t seed = 1;
    const auto batch = [&] {
      return narrowed_to<T>(random_batch(kPlanned, used, spec.columns(), seed++));
    };
    for (int k = 0; k < 2; ++k) {
      x[k] = batch();
      scale[k] = narrowed_to<T>(random_numbers(channels, seed++));
      shift[k] = narrowed_to<T>(random_numbers(channels, seed++));
      moments[k] = random_numbers(spec.moments(), seed++);
      sums[k] = random_numbers(spec.gradient_sums(), seed++);
    }
    dy = batch();
    for (const double bits : random_numbers(kPlanned * spec.mask_of_row(), seed++))
      mask.push_back(std::uint8_t(std::abs(bits) * 256));
  }
  std::size_t in_use() const { return used * spec.columns(); }
};

template <class T>
class BatchNormPairKernels : public testing::Test {
 protected:
  static void each(auto body) {
    for (const std::size_t channels : {3u, 8u, 72u})
      for (const std::size_t positions : {1u, 30u})
        for (const std::size_t used : {0u, 3u}) {
          SCOPED_TRACE(testing::Message() << channels << " channels, " << positions
                                          << " positions, " << used << " rows");
          body(Operands<T>(channels, positions, used));
          if (HasFatalFailure()) return;
        }
  }
};

using Types = testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(BatchNormPairKernels, Types);

// The outputs are also tested in place. The mask has a bit for each output above 0.
TYPED_TEST(BatchNormPairKernels, OutputsAreThoseOfTheReference) {
  using T = TypeParam;
  const std::unique_ptr<Device> device = reference_device();
  Machine m(*device, DType::kFloat64);
  this->each([&](const auto& o) {
    const auto batch = [&](const std::vector<T>& numbers) {
      return m.operand({kPlanned, o.positions, o.channels}, as_doubles(numbers));
    };
    const auto parameter = [&](const std::vector<T>& numbers) {
      return m.operand({o.channels}, as_doubles(numbers));
    };
    const Operand x = batch(o.x[0]), other = batch(o.x[1]), y = batch(o.x[0]),
                  scale = parameter(o.scale[0]), shift = parameter(o.shift[0]),
                  other_scale = parameter(o.scale[1]), other_shift = parameter(o.shift[1]);
    std::vector<std::uint8_t> mask(o.mask.size());
    BatchNormForward call{x.tensor, scale.tensor, shift.tensor, other.tensor, y.tensor};
    call.moments = o.moments[0].data(), call.mask = mask.data();
    call.other_moments = o.moments[1].data();
    call.other_scale = other_scale.tensor, call.other_shift = other_shift.tensor;
    m.ops().batch_norm_forward(&o.state, o.spec, call);
    const std::vector<double> expected = y.values();
    for (const LaunchShape& shape : kShapes) {
      std::vector<T> xs = o.x[0], others = o.x[1];
      std::vector<std::uint8_t> bits(o.mask.size(), 0xa5);
      BatchNormPairApply a{{&o.state, o.positions, o.channels, xs.data(), others.data()}};
      a.scale = o.scale[0].data(), a.shift = o.shift[0].data(), a.moments = o.moments[0].data();
      a.mask = bits.data(), a.y = shape.blocks == 3 ? others.data() : xs.data();
      a.second = a;
      a.second.scale = o.scale[1].data(), a.second.shift = o.shift[1].data();
      a.second.moments = o.moments[1].data();
      emulate(shape, [&] { run<T>(a); });
      const std::vector<T>& results = a.y == others.data() ? others : xs;
      ASSERT_NO_FATAL_FAILURE(expect_near(results, expected, o.in_use(), "y"));
      for (std::size_t i = o.in_use(); i < results.size(); ++i)
        ASSERT_TRUE(std::isnan(float(results[i])));
      for (std::size_t i = 0; i < o.in_use(); ++i) {
        const std::size_t row = i / o.spec.columns(), column = i % o.spec.columns();
        const unsigned byte = bits[row * o.spec.mask_of_row() + column / 8];
        if (expected[i] > 1e-3 || float(results[i]) == 0) {
          ASSERT_EQ(byte >> (column % 8) & 1, expected[i] > 1e-3 ? 1u : 0u) << i;
        }
      }
      for (std::size_t i = o.used * o.spec.mask_of_row(); i < bits.size(); ++i)
        ASSERT_EQ(bits[i], 0xa5);
    }
  });
}

// Holds the results of the reduction kernel.
template <class T>
struct Sums {
  std::vector<double> sums;
  std::vector<T> dscale, dshift;
  explicit Sums(std::size_t channels)
      : sums(2 * channels, std::nan("")), dscale(channels, T(0.5f)), dshift(channels, T(0.25f)) {}
  void to(BatchNormGradientSums& a) {
    a.sums = sums.data(), a.dscale = dscale.data(), a.dshift = dshift.data();
  }
  void expect_equal(const Sums& other) const {
    ASSERT_EQ(sums, other.sums);
    ASSERT_EQ(as_doubles(dscale), as_doubles(other.dscale));
    ASSERT_EQ(as_doubles(dshift), as_doubles(other.dshift));
  }
  // Expects nearly equal sums: chunks are added in another order if there are more sums.
  void expect_near_to(const Sums& other) const {
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], other.sums[i], 1e-11);
    expect_near(dscale, as_doubles(other.dscale), dscale.size(), "dscale");
    expect_near(dshift, as_doubles(other.dshift), dshift.size(), "dshift");
  }
};

TYPED_TEST(BatchNormPairKernels, SumsOfGradientsAreThoseOfTwoKernelsOnEveryGrid) {
  using T = TypeParam;
  this->each([&](const auto& o) {
    for (const unsigned tile : {kSumGroups, kWideSumGroups}) {
      for (const bool accumulate : {false, true}) {
        const unsigned chunks = 3;
        std::vector<double> room(chunks * 3 * o.channels, std::nan(""));
        std::vector<std::uint32_t> tickets(sum_tiles(line_groups(o.channels)));
        BatchNormGradientSums one[2];
        std::vector<Sums<T>> expected(2, Sums<T>(o.channels));
        for (int k = 0; k < 2; ++k) {
          one[k] = {&o.state,      o.positions,
                    o.channels,    o.x[k].data(),
                    o.dy.data(),   o.moments[k].data(),
                    o.mask.data(), {chunks, room.data(), tickets.data(), tile}};
          one[k].accumulate = accumulate;
          expected[std::size_t(k)].to(one[k]);
          emulate({1, 1, kLineThreads}, [&] { run<T>(one[k]); });
        }
        std::vector<Sums<T>> first;
        for (const LaunchShape& shape : kShapes) {
          std::vector<Sums<T>> results(2, Sums<T>(o.channels));
          BatchNormPairGradientSums both{one[0], one[1]};
          results[0].to(both), results[1].to(both.second);
          emulate(shape, [&] { run<T>(both); });
          if (first.empty()) first = results;
          for (std::size_t k = 0; k < 2; ++k) {
            ASSERT_NO_FATAL_FAILURE(results[k].expect_near_to(expected[k]));
            ASSERT_NO_FATAL_FAILURE(results[k].expect_equal(first[k]));
          }
          ASSERT_EQ(tickets, std::vector<std::uint32_t>(tickets.size()));
        }
      }
    }
  });
}

TYPED_TEST(BatchNormPairKernels, GradientsOfInputsHaveTheBitsOfTwoKernels) {
  using T = TypeParam;
  this->each([&](const auto& o) {
    const double count = double(o.positions * kPlanned);
    BatchNormBackpropagate one[2];
    std::vector<T> expected[2];
    for (int k = 0; k < 2; ++k) {
      expected[k].assign(o.dy.size(), T(7.0f));
      one[k] = {
          &o.state,          o.positions,         o.channels,    o.x[k].data(),    o.dy.data(),
          o.scale[k].data(), o.moments[k].data(), o.mask.data(), o.sums[k].data(), &count,
          expected[k].data()};
      emulate({1, 1, kLineThreads}, [&] { run<T>(one[k]); });
    }
    for (const LaunchShape& shape : kShapes) {
      for (const int wanted : {0, 1, 2}) {  // of which batch norms; 2: both
        std::vector<T> dx[2];
        for (std::vector<T>& numbers : dx) numbers.assign(o.dy.size(), T(7.0f));
        BatchNormPairBackpropagate both{one[0], one[1]};
        both.dx = wanted == 1 ? nullptr : dx[0].data();
        both.second.dx = wanted == 0 ? nullptr : dx[1].data();
        emulate(shape, [&] { run<T>(both); });
        for (int k = 0; k < 2; ++k) {
          if (wanted != 2 && wanted != k) continue;
          ASSERT_EQ(as_doubles(dx[k]), as_doubles(expected[k]));
        }
      }
    }
  });
}

}  // namespace batch_norm_pair_kernels_test
}  // namespace lockstep::engine::cuda
