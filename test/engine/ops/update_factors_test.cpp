// SPDX-License-Identifier: MIT
// Tests the factors that a step's updates derive from all gradients, given their squares. Also
// tests how a loss scale evolves from step to step.
#include "engine/ops/update_factors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/cpu/cpu_device.h"
#include "engine/ops/ops.h"
#include "engine/reference/reference_device.h"

namespace lockstep::engine {
namespace update_factors_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Holds one rank's memory and step.
struct Finder {
  UpdateRule rule;
  StepState state;
  std::vector<double> squares;
  std::vector<UpdateSegment> segments;
  Buffer bytes;
  UpdateMemory memory;

  explicit Finder(const UpdateRule& of, std::vector<double> numbers,
                  std::vector<UpdateSegment> all = {})
      : rule(of),
        squares(std::move(numbers)),
        segments(std::move(all)),
        bytes(UpdateMemory::bytes(segments.size())),
        memory(UpdateMemory::in(bytes.data(), segments.size())) {
    memory.begin(rule, segments);
  }
  const UpdateFactors& find() {
    find_factors({&rule, &state, squares.data(), squares.size(), segments.size(), memory});
    return *memory.factors;
  }
};

UpdateRule clipped(double norm) {
  UpdateRule rule;
  rule.clip_norm = norm;
  return rule;
}

UpdateRule dynamic(double start, std::int64_t interval = 3) {
  UpdateRule rule;
  rule.scaling = {.dynamic = true, .start = start, .growth_interval = interval};
  return rule;
}

TEST(UpdateFactors, ClipTheNormOfWhatTheLossScaleLeaves) {
  const double scale = 1 / (5 + 1e-12);
  Finder plain(clipped(1), {9, 16});
  EXPECT_DOUBLE_EQ(plain.find().scale, scale);
  Finder scaled(clipped(1), {9 * 64.0, 16 * 64.0});
  scaled.state.loss_scale = 8;
  EXPECT_DOUBLE_EQ(scaled.find().scale, scale / 8);
  Finder small(clipped(100), {9, 16});
  EXPECT_EQ(small.find().scale, 1);
}

TEST(UpdateFactors, LocalRatesAreOfWhatTheLossScaleLeaves) {
  UpdateRule lars;
  lars.kind = UpdateKind::kLars;
  // The first segment contains one block and a part of the next; the rest of that block belongs to
  // the second segment.
  const std::vector<UpdateSegment> segments{{kBlock + 10, true, true}, {2 * kBlock, true, false}};
  const auto rates = [&](double scale) {
    const double s = scale * scale;
    Finder finder(lars, {2 * s, 1, 7 * s, 3, 5 * s, 100}, segments);
    finder.state.loss_scale = scale;
    EXPECT_EQ(finder.find().scale, 1 / scale);
    return std::vector<double>(finder.memory.local_rates, finder.memory.local_rates + 2);
  };
  EXPECT_EQ(rates(1), (std::vector<double>{lars.local_rate(9, 4), 1}));
  EXPECT_EQ(rates(64), rates(1));
}

TEST(UpdateFactors, WithoutADynamicScaleNothingIsSkipped) {
  Finder finder(clipped(1), {1, kInfinity});
  EXPECT_FALSE(finder.find().skipped);
}

TEST(UpdateFactors, AStepOfGradientsThatAreNotFiniteIsSkippedAndHalvesTheScale) {
  for (const double wrong : {kInfinity, std::numeric_limits<double>::quiet_NaN()})
    for (std::size_t place = 0; place < 3; ++place)
      for (const bool clips : {false, true}) {
        UpdateRule rule = dynamic(1024);
        rule.clip_norm = clips ? 1 : 0;
        Finder finder(rule, {1, 1, 1});
        finder.squares[place] = wrong;
        finder.state.step = 7;
        EXPECT_TRUE(finder.find().skipped);
        EXPECT_EQ(*finder.memory.loss_scale, (LossScaleState{512, 0, 1, 1}));
        finder.squares[place] = 1;
        finder.state.step = 8;
        EXPECT_FALSE(finder.find().skipped);
        const double clip = clips ? 1 / (std::sqrt(3.0) / 512 + 1e-12) : 1;
        EXPECT_EQ(finder.memory.factors->scale, std::min(1.0, clip) / 512);
        EXPECT_EQ(finder.memory.factors->updates, 7) << "of nine steps one was no update";
        EXPECT_EQ(*finder.memory.loss_scale, (LossScaleState{512, 1, 1, 0}));
      }
}

// Finite gradients may have an infinite sum of squares.
TEST(UpdateFactors, ASumThatIsTooLargeIsNoGradientThatIsNotFinite) {
  Finder finder(dynamic(1), {1e308, 1e308, 1e308});
  EXPECT_FALSE(finder.find().skipped);
}

TEST(LossScale, DoublesAfterSoManyStepsSinceItChanged) {
  const LossScaling rule{.dynamic = true, .growth_interval = 3};
  LossScaleState state{.scale = 64};
  std::vector<double> scales;
  for (const bool finite : {true, true, true, true, true, false, true, true, true, true}) {
    state = after_step(state, finite, rule);
    scales.push_back(state.scale);
  }
  EXPECT_EQ(scales, (std::vector<double>{64, 64, 128, 128, 128, 64, 64, 64, 128, 128}));
  EXPECT_EQ(state.skipped, 1);
}

// The bounds keep every product and quotient with the scale within float32.
TEST(LossScale, StaysWithinBounds) {
  const LossScaling rule{.dynamic = true, .growth_interval = 1};
  LossScaleState state{.scale = 1};
  for (int step = 0; step < 200; ++step) state = after_step(state, true, rule);
  EXPECT_EQ(state.scale, LossScaling::kMost);
  for (int step = 0; step < 200; ++step) state = after_step(state, false, rule);
  EXPECT_EQ(state.scale, LossScaling::kLeast / 2);
  EXPECT_EQ(state.in_a_row, 200);
}

// Updates two weights with Adam's slots.
void update(Ops& ops, const UpdateRule& rule, const UpdateFactors* factors, StepState state,
            float (&weights)[2], float (&slots)[2][2]) {
  const float gradients[] = {3, -4};
  const std::byte* const from[] = {reinterpret_cast<const std::byte*>(gradients)};
  std::byte* const to[] = {reinterpret_cast<std::byte*>(weights)};
  ReduceArguments a{.from = from, .to = to, .count = 2};
  a.epilogue = Epilogue::kUpdate, a.update.rule = &rule, a.update.state = &state,
  a.update.weight = to[0];
  for (std::size_t k = 0; k < 2; ++k) a.update.slots[k] = reinterpret_cast<std::byte*>(slots[k]);
  a.update.factors = factors;
  ops.reduce(a);
}

TEST(UpdateFactors, AreObeyedByUpdates) {
  UpdateRule adam;
  adam.kind = UpdateKind::kAdam;
  adam.epsilon = 1e-3;
  StepState state;
  state.step = 9, state.rate = 0.1;
  const auto cpu = cpu_device(), reference = reference_device();
  for (Device* const device : {cpu.get(), reference.get()}) {
    const auto ops = device->ops(device == cpu.get() ? DType::kFloat32 : DType::kFloat64, {});
    float skipped[] = {5, 6}, slots[2][2] = {{1, 2}, {3, 4}};
    const UpdateFactors skip{.scale = kInfinity, .updates = 3, .skipped = true};
    update(*ops, adam, &skip, state, skipped, slots);
    EXPECT_EQ(skipped[0], 5);
    EXPECT_EQ(skipped[1], 6);
    EXPECT_EQ(slots[0][0], 1);
    EXPECT_EQ(slots[1][1], 4);

    float found[] = {5, 6}, wanted[] = {5, 6}, s[2][2] = {}, t[2][2] = {};
    StepState other = state;
    other.loss_scale = 123;  // for other updates
    const UpdateFactors factors{.scale = 0.25, .updates = 4};
    update(*ops, adam, &factors, other, found, s);
    StepState same = state;
    same.step = 4, same.loss_scale = 4;
    update(*ops, adam, nullptr, same, wanted, t);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(found[i], wanted[i]);
      EXPECT_EQ(s[0][i], t[0][i]);
      EXPECT_EQ(s[1][i], t[1][i]);
    }
    EXPECT_FLOAT_EQ(s[0][0], float(0.1 * 3 / 4));
  }
}

}  // namespace update_factors_test
}  // namespace lockstep::engine
