// SPDX-License-Identifier: MIT
// Tests the batch norm kernels. They agree with the float64 reference, access only rows in use, and
// give the same bits on every grid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/cuda/kernels/batch_norm.cuh"
#include "engine/reference/reference_device.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/kernel_numbers.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace batch_norm_kernels_test {

constexpr std::size_t kPlanned = 5;

struct Case {
  std::size_t channels, positions, used;
  bool relu, adds;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  bool turn = false;
  for (const std::size_t channels : {1u, 3u, 8u, 10u, 48u, 264u})
    for (const std::size_t positions : {1u, 30u})
      for (const std::size_t used : {0u, 1u, 4u}) {
        turn = !turn;
        all.push_back({channels, positions, used, turn, false});
        all.push_back({channels, positions, used, !turn, true});
      }
  return all;
}

const LaunchShape kShapes[] = {{1, 1, kLineThreads}, {3, 2, kLineThreads}, {2, 40, kLineThreads}};

// The tolerance of sums: 16-bit kernels add a few rows in float32.
template <class T>
constexpr double kOfSums = sizeof(T) == 2 ? 1e-5 : 1e-12;

// Holds memory for the partial sums of a reduction kernel. Tickets are zero before and after.
struct Room {
  std::vector<double> sums;
  std::vector<std::uint32_t> tickets;
  Partials partials;
  Room(std::size_t channels, unsigned chunks)
      : sums(chunks * 2 * channels, std::nan("")),
        tickets(sum_tiles(line_groups(channels))),
        partials{chunks, sums.data(), tickets.data()} {}
  Room(std::size_t lines, std::size_t channels)
      : Room(channels, sum_chunks(lines, line_groups(channels))) {}
  Room(const Room&) = delete;
  bool tickets_are_zero() const { return std::ranges::count(tickets, 0u) == long(tickets.size()); }
};

template <class T>
class BatchNormKernels : public testing::Test {
 protected:
  // Holds the operands of a case, for the kernels and for the reference.
  struct Operands {
    Case c;
    BatchNormSpec spec;
    StepState state;
    std::vector<double> x, other, dy, scale, shift, moments;
    std::vector<std::uint8_t> mask;

    explicit Operands(const Case& one) : c(one) {
      spec.positions = c.positions, spec.channels = c.channels;
      spec.activation = c.relu ? Activation::kRelu : Activation::kNone;
      state.examples = std::int64_t(c.used);
      const std::size_t columns = spec.columns();
      x = held_by<T>(random_batch(kPlanned, c.used, columns, 1));
      other = held_by<T>(random_batch(kPlanned, c.used, columns, 2));
      dy = held_by<T>(random_batch(kPlanned, c.used, columns, 3));
      scale = held_by<T>(random_numbers(c.channels, 4));
      shift = held_by<T>(random_numbers(c.channels, 5));
      moments = random_numbers(spec.moments(), 6);
      for (std::size_t i = c.channels; i < spec.moments(); ++i) moments[i] += 1.5;
      for (const double bits : random_numbers(kPlanned * spec.mask_of_row(), 7))
        mask.push_back(std::uint8_t(std::abs(bits) * 256));
    }
    Shape batch() const { return {kPlanned, c.positions, c.channels}; }
    std::size_t in_use() const { return c.used * spec.columns(); }
  };

  void each(auto body) {
    for (const Case& one : cases()) {
      SCOPED_TRACE(testing::Message()
                   << one.channels << " channels, " << one.positions << " positions, " << one.used
                   << " rows, relu " << one.relu << ", adds " << one.adds);
      body(Operands(one));
      if (this->HasFatalFailure()) return;
    }
  }

  static const std::uint8_t* mask_of(const Operands& o) {
    return o.c.relu ? o.mask.data() : nullptr;
  }

  std::unique_ptr<Device> device_ = reference_device();
  Machine oracle_{*device_, DType::kFloat64};
};

using Types = testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(BatchNormKernels, Types);

TYPED_TEST(BatchNormKernels, SumsAreThoseOfTheReferenceOnEveryGrid) {
  using T = TypeParam;
  this->each([&](const auto& o) {
    std::vector<double> expected(o.spec.sums()), first;
    const Operand x = this->oracle_.operand(o.batch(), o.x);
    this->oracle_.ops().batch_norm_sums(&o.state, o.spec, x.tensor, expected.data());
    const std::vector<T> values = narrowed_to<T>(o.x);
    for (const LaunchShape& shape : kShapes) {
      std::vector<double> sums(o.spec.sums());
      Room room(kPlanned * o.c.positions, o.c.channels);
      BatchNormSums a{&o.state, o.c.positions, o.c.channels, values.data(), room.partials};
      a.sums = sums.data();
      emulate(shape, [&] { run<T>(a); });
      for (std::size_t i = 0; i < sums.size(); ++i)
        ASSERT_NEAR(sums[i], expected[i], kOfSums<T>) << i;
      if (first.empty()) first = sums;
      ASSERT_EQ(sums, first);
      ASSERT_TRUE(room.tickets_are_zero());
    }
  });
}

// The numbers of chunks include fewer than the threads per sum, and more than these load at once.
// Each chunk has rows.
TYPED_TEST(BatchNormKernels, AnyNumberOfChunksGivesTheSums) {
  using T = TypeParam;
  constexpr std::size_t kChannels = 48, kLines = 2200;
  constexpr unsigned kMost = 34;
  ASSERT_GE(kLines, kMost * kLineThreads / kSumGroups);
  StepState state;
  state.examples = kLines;
  const std::vector<double> x = held_by<T>(random_numbers(kLines * kChannels, 1));
  const std::vector<T> values = narrowed_to<T>(x);
  std::vector<double> expected(2 * kChannels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected[i % kChannels] += x[i];
    expected[kChannels + i % kChannels] += x[i] * x[i];
  }
  for (const unsigned chunks : {1u, 2u, 5u, 16u, 17u, kMost}) {
    for (const LaunchShape& shape : kShapes) {
      std::vector<double> sums(2 * kChannels + 1);
      Room room(std::size_t(kChannels), chunks);
      room.partials.tile = chunks % 2 == 0 ? kSumGroups : kWideSumGroups;
      BatchNormSums a{&state, 1, kChannels, values.data(), room.partials};
      a.sums = sums.data();
      emulate(shape, [&] { run<T>(a); });
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(sums[i], expected[i], kOfSums<T> * std::max(1.0, std::abs(expected[i])))
            << chunks << " chunks";
      ASSERT_EQ(sums.back(), double(kLines));
      ASSERT_TRUE(room.tickets_are_zero());
    }
  }
}

// The moments also have the same bits if the reduction kernel computes them.
TYPED_TEST(BatchNormKernels, MomentsOfTheSumsHaveTheBitsOfTheKernelForThem) {
  using T = TypeParam;
  this->each([&](const auto& o) {
    const std::vector<T> values = narrowed_to<T>(o.x);
    const std::vector<double> before = random_numbers(o.spec.moments(), 11);
    std::vector<double> sums(o.spec.sums()), moments[2], averages[2];
    double counts[2] = {-1, -2};
    for (int k = 0; k < 2; ++k) moments[k].resize(o.spec.moments()), averages[k] = before;
    Room room(kPlanned * o.c.positions, o.c.channels);
    const auto find = [&](int k) {
      return BatchNormFindMoments{
          o.c.channels, 1e-3, sums.data(), moments[k].data(), &counts[k], averages[k].data(), 0.75};
    };
    const BatchNormSums a{&o.state,      o.c.positions, o.c.channels, values.data(),
                          room.partials, sums.data(),   find(0)};
    emulate({2, 3, kLineThreads}, [&] { run<T>(a); });
    const BatchNormFindMoments b = find(1);
    emulate({1, 1, 32}, [&] { run<T>(b); });
    EXPECT_EQ(counts[0], counts[1]);
    EXPECT_EQ(moments[0], moments[1]);
    EXPECT_EQ(averages[0], averages[1]);
  });
}

TYPED_TEST(BatchNormKernels, MomentsAndAveragesHaveTheBitsOfTheHost) {
  BatchNormSpec spec;
  spec.channels = 300;
  for (const double n : {0.0, 1.0, 37.0}) {
    std::vector<double> sums = random_numbers(spec.sums(), 1);
    for (std::size_t c = 0; c < spec.channels; ++c)
      sums[spec.channels + c] = sums[c] * sums[c] / std::max(n, 1.0) + (c % 7 == 0 ? -1e-9 : 0.01);
    sums[2 * spec.channels] = n;
    std::vector<double> before = random_numbers(spec.moments(), 2);
    for (double& number : before) number /= 64;
    for (const bool follow : {true, false}) {
      std::vector<double> moments[2], averages[2];
      double counts[2];
      for (int k = 0; k < 2; ++k) moments[k].resize(spec.moments()), averages[k] = before;
      this->oracle_.ops().batch_norm_moments(spec, {sums.data(), moments[0].data(), &counts[0],
                                                    follow ? averages[0].data() : nullptr, 0.9});
      const BatchNormFindMoments a{spec.channels,
                                   spec.epsilon,
                                   sums.data(),
                                   moments[1].data(),
                                   &counts[1],
                                   follow ? averages[1].data() : nullptr,
                                   0.9};
      emulate({2, 1, 64}, [&] { run<TypeParam>(a); });
      EXPECT_EQ(counts[1], counts[0]);
      EXPECT_EQ(moments[1], moments[0]);
      EXPECT_EQ(averages[1], averages[0]);
      EXPECT_EQ(averages[1] == before, n == 0 || !follow);
    }
  }
}

TYPED_TEST(BatchNormKernels, FixedMomentsHaveTheBitsOfTheHost) {
  BatchNormSpec spec;
  spec.channels = 70;
  std::vector<double> averages = random_numbers(spec.moments(), 1), expected(averages.size()),
                      moments(averages.size());
  for (double& average : averages) average = std::abs(average);
  this->oracle_.ops().batch_norm_fixed_moments(spec, averages.data(), expected.data());
  const BatchNormFixedMoments a{spec.channels, spec.epsilon, averages.data(), moments.data()};
  emulate({1, 1, 32}, [&] { run<TypeParam>(a); });
  EXPECT_EQ(moments, expected);
}

// The outputs are also tested in place. The mask has a bit for each output above 0.
TYPED_TEST(BatchNormKernels, OutputsAreThoseOfTheReference) {
  using T = TypeParam;
  this->each([&](const auto& o) {
    Machine& m = this->oracle_;
    const Operand x = m.operand(o.batch(), o.x), other = m.operand(o.batch(), o.other),
                  scale = m.operand({o.c.channels}, o.scale),
                  shift = m.operand({o.c.channels}, o.shift), y = m.empty(o.batch());
    std::vector<std::uint8_t> mask(o.mask.size());
    BatchNormForward call{x.tensor, scale.tensor, shift.tensor};
    if (o.c.adds) call.other = other.tensor;
    call.y = y.tensor, call.moments = o.moments.data(), call.mask = mask.data();
    m.ops().batch_norm_forward(&o.state, o.spec, call);
    const std::vector<double> expected = y.values();
    const std::vector<T> scales = narrowed_to<T>(o.scale), shifts = narrowed_to<T>(o.shift);
    for (const LaunchShape& shape : kShapes) {
      std::vector<T> values = narrowed_to<T>(o.x), others = narrowed_to<T>(o.other);
      std::vector<std::uint8_t> bits(o.mask.size(), 0xa5);
      BatchNormApply a{&o.state, o.c.positions, o.c.channels, values.data()};
      a.other = o.c.adds ? others.data() : nullptr;
      a.scale = scales.data(), a.shift = shifts.data(), a.moments = o.moments.data();
      a.y = shape.blocks == 3 && o.c.adds ? others.data() : values.data();
      a.mask = o.c.relu ? bits.data() : nullptr;
      emulate(shape, [&] { run<T>(a); });
      const std::vector<T>& results = a.y == others.data() ? others : values;
      ASSERT_NO_FATAL_FAILURE(expect_near(results, expected, o.in_use(), "y"));
      for (std::size_t i = o.in_use(); i < results.size(); ++i)
        ASSERT_TRUE(std::isnan(float(results[i])));
      for (std::size_t i = 0; i < o.in_use() && o.c.relu; ++i) {
        const std::size_t row = i / o.spec.columns(), column = i % o.spec.columns();
        const unsigned byte = bits[row * o.spec.mask_of_row() + column / 8];
        if (expected[i] > 1e-3 || float(results[i]) == 0) {
          ASSERT_EQ(byte >> (column % 8) & 1, expected[i] > 1e-3 ? 1u : 0u) << i;
        }
      }
      for (std::size_t i = o.c.used * o.spec.mask_of_row(); i < bits.size(); ++i)
        ASSERT_EQ(bits[i], 0xa5);
    }
  });
}

TYPED_TEST(BatchNormKernels, WhatIsNotANumberIsKept) {
  using T = TypeParam;
  for (const std::size_t channels : {16u, 3u}) {
    StepState state;
    state.examples = 1;
    std::vector<T> x(2 * channels, T(1.0f));
    x[1] = T(std::numeric_limits<float>::quiet_NaN());
    const std::vector<T> ones(channels, T(1.0f));
    const std::vector<double> moments(2 * channels, 0.5);
    std::vector<std::uint8_t> mask(4);
    BatchNormApply a{&state, 2, channels, x.data()};
    a.scale = ones.data(), a.shift = ones.data(), a.moments = moments.data();
    a.y = x.data(), a.mask = mask.data();
    emulate({1, 1, kLineThreads}, [&] { run<T>(a); });
    EXPECT_TRUE(std::isnan(float(x[1])));
    EXPECT_EQ(float(x[0]), 1.25f);
  }
}

TYPED_TEST(BatchNormKernels, GradientSumsAreThoseOfTheReferenceOnEveryGrid) {
  using T = TypeParam;
  this->each([&](const auto& o) {
    Machine& m = this->oracle_;
    const Operand x = m.operand(o.batch(), o.x), dy = m.operand(o.batch(), o.dy),
                  scale = m.operand({o.c.channels}, o.scale);
    const std::vector<double> before = held_by<T>(random_numbers(2 * o.c.channels, 9));
    const std::vector<T> xs = narrowed_to<T>(o.x), dys = narrowed_to<T>(o.dy);
    std::vector<double> expected(o.spec.gradient_sums()), first;
    BatchNormBackward call{x.tensor, dy.tensor, scale.tensor};
    call.moments = o.moments.data(), call.mask = o.mask.data();
    m.ops().batch_norm_gradient_sums(&o.state, o.spec, call, {}, {}, false, expected.data());
    for (const LaunchShape& shape : kShapes) {
      const bool adds = shape.blocks == 2;
      std::vector<double> sums(expected.size(), std::nan(""));
      Room room(kPlanned * o.c.positions, o.c.channels);
      BatchNormGradientSums a{&o.state, o.c.positions, o.c.channels, xs.data(), dys.data()};
      a.moments = o.moments.data(), a.mask = this->mask_of(o), a.partials = room.partials;
      std::vector<T> gradients = narrowed_to<T>(before);  // of shift; of scale
      a.sums = sums.data(), a.dshift = gradients.data();
      a.dscale = gradients.data() + o.c.channels, a.accumulate = adds;
      emulate(shape, [&] { run<T>(a); });
      ASSERT_TRUE(room.tickets_are_zero());
      std::vector<double> of_parameters;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        ASSERT_NEAR(sums[i], expected[i], kOfSums<T>) << i;
        of_parameters.push_back(expected[i] + (adds ? before[i] : 0));
      }
      ASSERT_NO_FATAL_FAILURE(expect_near(gradients, of_parameters, sums.size(), "gradient"));
      if (first.empty()) first = sums;
      ASSERT_EQ(sums, first);
      a.dscale = a.dshift = nullptr;  // of frozen parameters
      sums.assign(sums.size(), std::nan(""));
      emulate({1, 1, kLineThreads}, [&] { run<T>(a); });
      ASSERT_EQ(sums, first);
    }
  });
}

TYPED_TEST(BatchNormKernels, GradientsOfInputsAreThoseOfTheReference) {
  using T = TypeParam;
  this->each([&](const auto& o) {
    Machine& m = this->oracle_;
    const Operand x = m.operand(o.batch(), o.x), dy = m.operand(o.batch(), o.dy),
                  scale = m.operand({o.c.channels}, o.scale), dx = m.empty(o.batch()),
                  dother = m.empty(o.batch());
    const std::vector<double> sums = random_numbers(o.spec.gradient_sums(), 8);
    const double count = double(o.c.positions * 4);
    BatchNormBackward call{x.tensor, dy.tensor, scale.tensor, dx.tensor, dother.tensor};
    call.moments = o.moments.data(), call.mask = o.mask.data(), call.count = &count;
    if (!o.c.adds) call.sums = sums.data();
    m.ops().batch_norm_backward(&o.state, o.spec, call);
    const std::vector<T> xs = narrowed_to<T>(o.x), scales = narrowed_to<T>(o.scale);
    for (const LaunchShape& shape : kShapes) {
      std::vector<T> of_x = narrowed_to<T>(o.dy), of_other(of_x.size(), T(7.0f));
      BatchNormBackpropagate a{&o.state, o.c.positions, o.c.channels, xs.data(), of_x.data()};
      a.scale = scales.data(), a.moments = o.moments.data(), a.mask = this->mask_of(o);
      a.sums = call.sums, a.count = &count;
      a.dx = of_x.data(), a.dother = shape.blocks == 3 ? nullptr : of_other.data();
      emulate(shape, [&] { run<T>(a); });
      ASSERT_NO_FATAL_FAILURE(expect_near(of_x, dx.values(), o.in_use(), "dx"));
      if (a.dother != nullptr) {
        ASSERT_NO_FATAL_FAILURE(expect_near(of_other, dother.values(), o.in_use(), "dother"));
      }
      for (std::size_t i = o.in_use(); i < of_x.size(); ++i) {
        ASSERT_TRUE(std::isnan(float(of_x[i])));
        ASSERT_EQ(float(of_other[i]), 7.0f);
      }
    }
  });
}

// The results are the same, bit by bit, if a row is not aligned to 16 bytes.
TYPED_TEST(BatchNormKernels, AnyAlignmentGivesTheSame) {
  using T = TypeParam;
  constexpr std::size_t kChannels = 16;
  StepState state;
  state.examples = 3;
  const std::vector<T> values = narrowed_to<T>(random_numbers(3 * kChannels, 1));
  const std::vector<double> moments(2 * kChannels, 0.5);
  std::vector<double> first_sums;
  std::vector<double> first_results;
  for (const std::size_t lead : {0u, 1u}) {
    std::vector<T> x(lead, T(0.0f));
    x.insert(x.end(), values.begin(), values.end());
    std::vector<double> sums(2 * kChannels + 1);
    Room room(std::size_t(kChannels), 1u);
    BatchNormSums of_values{&state, 1, kChannels, x.data() + lead, room.partials, sums.data()};
    emulate({1, 1, kLineThreads}, [&] { run<T>(of_values); });
    BatchNormApply a{&state, 1, kChannels, x.data() + lead};
    a.scale = values.data(), a.shift = values.data(), a.moments = moments.data();
    a.y = x.data() + lead;
    emulate({1, 1, kLineThreads}, [&] { run<T>(a); });
    const std::vector<double> results = as_doubles(std::vector<T>(x.begin() + long(lead), x.end()));
    if (lead == 0) first_sums = sums, first_results = results;
    EXPECT_EQ(sums, first_sums);
    EXPECT_EQ(results, first_results);
  }
}

}  // namespace batch_norm_kernels_test
}  // namespace lockstep::engine::cuda
