// SPDX-License-Identifier: MIT
// Tests that batch normalization on every device agrees with the float64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "test/engine/ops/conformance.h"

namespace lockstep::engine {
namespace batch_norm_test {

struct Case {
  BatchNormSpec spec;
  Rows rows;
  bool other, accumulate, constant;
  double offset;  // of all values; must not affect variances
};

Results run(Machine& m, const Case& c) {
  const BatchNormSpec& s = c.spec;
  const StepState* const state = m.publish(state_of(c.rows.used));
  const Shape shape{c.rows.planned, s.positions, s.channels};
  const auto batch = [&](std::uint64_t seed, double offset) {
    std::vector<double> numbers = random_batch(c.rows.planned, c.rows.used, s.columns(), seed);
    for (double& number : numbers) number = double(float(number + offset));
    return m.operand(shape, numbers);
  };
  const Operand x = batch(1, c.offset), other = batch(2, 0), dy = batch(3, 0);
  const Operand scale = m.operand({s.channels}, random_numbers(s.channels, 4));
  const Operand shift = m.operand({s.channels}, random_numbers(s.channels, 5));
  const auto sums = m.numbers(std::vector<double>(s.sums(), 7));
  const auto gradient_sums = m.numbers(std::vector<double>(s.gradient_sums(), 7));
  const auto moments = m.numbers(std::vector<double>(s.moments(), 7));
  const auto count = m.numbers(std::vector<double>(1, 7));
  const auto averages = m.numbers(random_numbers(s.moments(), 8));
  Ops& ops = m.ops();
  ops.batch_norm_sums(state, s, x.tensor, sums.data());
  ops.batch_norm_moments(s, {sums.data(), moments.data(), count.data(), averages.data(), 0.75});

  const Operand y = m.empty(shape), dx = m.empty(shape), dother = m.empty(shape);
  const auto mask =
      m.numbers(std::vector<std::uint8_t>(c.rows.planned * s.mask_of_row() + 1, 0xa5));
  BatchNormForward forward{x.tensor, scale.tensor, shift.tensor};
  if (c.other) forward.other = other.tensor;
  forward.y = y.tensor;
  forward.moments = moments.data();
  forward.mask = mask.data();
  ops.batch_norm_forward(state, s, forward);
  EXPECT_EQ(mask.values().back(), 0xa5) << "bits beyond the mask were written";

  const Operand dscale = m.operand({s.channels}, random_numbers(s.channels, 6));
  const Operand dshift = m.operand({s.channels}, random_numbers(s.channels, 7));
  BatchNormBackward backward{x.tensor, dy.tensor, scale.tensor};
  backward.moments = moments.data();
  backward.mask = mask.data();
  ops.batch_norm_gradient_sums(state, s, backward, dscale.tensor, dshift.tensor, c.accumulate,
                               gradient_sums.data());
  backward.dx = dx.tensor;
  if (c.other) backward.dother = dother.tensor;
  backward.sums = c.constant ? nullptr : gradient_sums.data();
  backward.count = count.data();
  ops.batch_norm_backward(state, s, backward);
  Results results = {sums.values(),          moments.values(),       y.values(c.rows.used),
                     dscale.values(),        gradient_sums.values(), dshift.values(),
                     dx.values(c.rows.used), count.values(),         averages.values()};
  if (c.other) results.push_back(dother.values(c.rows.used));
  return results;
}

// Runs two batch norms whose outputs are added, in one pass.
Results run_pair(Machine& m, const Case& c) {
  const BatchNormSpec& s = c.spec;
  const StepState* const state = m.publish(state_of(c.rows.used));
  const Shape shape{c.rows.planned, s.positions, s.channels};
  const auto parameter = [&](std::uint64_t seed) {
    return m.operand({s.channels}, random_numbers(s.channels, seed));
  };
  const auto batch = [&](std::uint64_t seed) {
    return m.operand(shape, random_batch(c.rows.planned, c.rows.used, s.columns(), seed));
  };
  Ops& ops = m.ops();
  const Operand dy = batch(3), y = m.empty(shape);
  const Operand x[2] = {batch(1), batch(2)}, dx[2] = {m.empty(shape), m.empty(shape)};
  const Operand scale[2] = {parameter(4), parameter(5)}, shift[2] = {parameter(6), parameter(7)};
  const Operand dscale[2] = {parameter(8), parameter(9)},
                dshift[2] = {parameter(10), parameter(11)};
  std::vector<Numbers<double>> sums, moments, counts, gradient_sums;
  for (int k = 0; k < 2; ++k) {
    sums.push_back(m.numbers(std::vector<double>(s.sums(), 7)));
    moments.push_back(m.numbers(std::vector<double>(s.moments(), 7)));
    counts.push_back(m.numbers(std::vector<double>(1, 7)));
    gradient_sums.push_back(m.numbers(std::vector<double>(s.gradient_sums(), 7)));
    ops.batch_norm_statistics(state, s, x[k].tensor, sums[k].data(),
                              {sums[k].data(), moments[k].data(), counts[k].data(), nullptr, 0});
  }
  const auto mask = m.numbers(std::vector<std::uint8_t>(c.rows.planned * s.mask_of_row() + 1, 0));
  BatchNormForward forward{x[0].tensor, scale[0].tensor, shift[0].tensor, x[1].tensor, y.tensor};
  forward.moments = moments[0].data(), forward.mask = mask.data();
  forward.other_moments = moments[1].data();
  forward.other_scale = scale[1].tensor, forward.other_shift = shift[1].tensor;
  ops.batch_norm_forward(state, s, forward);

  BatchNormPair pair;
  std::array<BatchNormGradients, 2> results;
  for (int k = 0; k < 2; ++k) {
    pair[k] = {x[k].tensor, dy.tensor, scale[k].tensor};
    pair[k].moments = moments[k].data(), pair[k].mask = mask.data();
    results[k] = {gradient_sums[k].data(), dscale[k].tensor, dshift[k].tensor};
  }
  ops.batch_norm_pair_gradient_sums(state, s, pair, c.accumulate, results);
  for (int k = 0; k < 2; ++k) {
    if (!c.constant) pair[k].sums = gradient_sums[k].data(), pair[k].count = counts[k].data();
    if (c.other || k == 0) pair[k].dx = dx[k].tensor;
  }
  ops.batch_norm_pair_backward(state, s, pair);
  Results all = {y.values(c.rows.used)};
  for (int k = 0; k < 2; ++k) {
    for (const Operand* operand : {&dscale[k], &dshift[k]}) all.push_back(operand->values());
    all.push_back(gradient_sums[k].values());
    if (c.other || k == 0) all.push_back(dx[k].values(c.rows.used));
  }
  return all;
}

// `other` of a case means that the gradient of the second input is requested.
TEST_F(Conformance, BatchNormPair) {
  const std::size_t sizes[][2] = {{1, 1}, {5, 3}, {9, 16}, {4, 24}, {49, 80}};
  int counter = 0;
  for (const auto& [positions, channels] : sizes) {
    for (Rows rows : {Rows{1, 1}, Rows{5, 3}, Rows{3, 0}}) {
      for (int variant : {counter % 16, (counter + 7) % 16}) {
        Case c{{positions, channels}, rows, variant % 2 == 1, variant / 4 % 2 == 1,
               variant / 8 == 1,      0};
        c.spec.activation = variant / 2 % 2 == 0 ? Activation::kNone : Activation::kRelu;
        compare(fmt::format("{} positions of {} channels, {} of {} rows, variant {}", positions,
                            channels, rows.used, rows.planned, variant),
                [&](Machine& m) { return run_pair(m, c); });
        if (enough_failed()) return;
      }
      ++counter;
    }
  }
}

TEST_F(Conformance, BatchNorm) {
  const std::size_t sizes[][2] = {{1, 1}, {5, 3}, {1, 16}, {9, 16}, {4, 24}, {49, 80}, {300, 64}};
  int counter = 0;
  for (const auto& [positions, channels] : sizes) {
    for (Rows rows : {Rows{1, 1}, Rows{5, 3}, Rows{3, 0}, Rows{9, 9}}) {
      for (int variant : {counter % 16, (counter + 7) % 16, (counter + 10) % 16}) {
        Case c{{positions, channels}, rows,
               variant % 2 == 1,      variant / 4 % 2 == 1,
               variant / 8 == 1,      counter % 3 == 0 ? 3.0 : 0.0};
        c.spec.activation = variant / 2 % 2 == 0 ? Activation::kNone : Activation::kRelu;
        compare(fmt::format("{} positions of {} channels, {} of {} rows, variant {}", positions,
                            channels, rows.used, rows.planned, variant),
                [&](Machine& m) { return run(m, c); });
        if (enough_failed()) return;
      }
      ++counter;
    }
  }
}

// The variance of a channel is accurate even if its values lie far from zero.
TEST_F(Conformance, ABatchNormOfValuesFarFromZeroLosesNothing) {
  const BatchNormSpec spec{64, 16};
  const Case c{spec, {8, 8}, false, false, false, 1000.0};
  const std::vector<double> exact = run(oracle_, c)[1], rounded = run(rounded_oracle_, c)[1],
                            halves = run(halves_oracle_, c)[1];
  for (Machine& m : machines_) {
    SCOPED_TRACE(m.name());
    const std::vector<double>& expected = m.dtype() == DType::kBFloat16  ? rounded
                                          : m.dtype() == DType::kFloat16 ? halves
                                                                         : exact;
    const std::vector<double> moments = run(m, c)[1];
    for (std::size_t i = 0; i < moments.size(); ++i) {
      EXPECT_NEAR(moments[i] / expected[i], 1, 1e-5);
    }
  }
}

TEST_F(Conformance, ABatchNormKeepsWhatIsNotANumber) {
  for (std::size_t channels : {16u, 3u}) {
    for (Machine& m : machines_) {
      SCOPED_TRACE(m.name());
      const BatchNormSpec spec{2, channels, 1e-5, Activation::kRelu};
      const StepState* const state = m.publish(state_of(1));
      std::vector<double> numbers = random_numbers(spec.columns(), 1);
      numbers[1] = std::numeric_limits<double>::quiet_NaN();
      const Operand x = m.operand({1, 2, channels}, numbers), y = m.empty({1, 2, channels});
      const Operand one = m.operand({channels}, std::vector<double>(channels, 1));
      const Operand none = m.operand({channels}, std::vector<double>(channels, 0));
      const auto moments = m.numbers(std::vector<double>(spec.moments(), 0.5));
      const auto mask = m.numbers(std::vector<std::uint8_t>(spec.mask_of_row()));
      BatchNormForward call{x.tensor, one.tensor, none.tensor};
      call.y = y.tensor;
      call.moments = moments.data();
      call.mask = mask.data();
      m.ops().batch_norm_forward(state, spec, call);
      EXPECT_TRUE(std::isnan(y.values()[1]));
      EXPECT_FALSE(std::isnan(y.values()[0]));
    }
  }
}

TEST_F(Conformance, FixedMomentsOfABatchNormAreItsAverages) {
  const BatchNormSpec spec{3, 5, 1e-5};
  for (Machine& m : machines_) {
    SCOPED_TRACE(m.name());
    std::vector<double> averages{1, 2, 3, 4, 5, 0, 1, 0.25, 4, 100};
    const auto there = m.numbers(averages);
    const auto moments = m.numbers(std::vector<double>(spec.moments(), 7));
    m.ops().batch_norm_fixed_moments(spec, there.data(), moments.data());
    for (std::size_t c = 0; c < spec.channels; ++c) {
      EXPECT_EQ(moments.values()[c], averages[c]);
      EXPECT_NEAR(moments.values()[spec.channels + c],
                  1 / std::sqrt(averages[spec.channels + c] + 1e-5), 1e-9);
    }
  }
}

// Without examples, nothing is learned and the moments are finite.
TEST_F(Conformance, ABatchNormOfNothingKeepsItsAverages) {
  const BatchNormSpec spec{3, 2, 1e-5};
  for (Machine& m : machines_) {
    SCOPED_TRACE(m.name());
    const auto sums = m.numbers(std::vector<double>(spec.sums(), 0));
    const auto moments = m.numbers(std::vector<double>(spec.moments(), 7));
    const auto count = m.numbers(std::vector<double>(1, 7));
    const auto averages = m.numbers(std::vector<double>{1, 2, 3, 4});
    m.ops().batch_norm_moments(spec,
                               {sums.data(), moments.data(), count.data(), averages.data(), 0.5});
    EXPECT_EQ(averages.values(), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(count.values(), std::vector<double>{1});
    EXPECT_EQ(moments.values()[0], 0);
  }
}

}  // namespace batch_norm_test
}  // namespace lockstep::engine
