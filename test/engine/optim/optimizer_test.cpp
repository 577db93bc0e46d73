// SPDX-License-Identifier: MIT
#include "engine/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "engine/base/error.h"
#include "engine/ops/ops.h"
#include "engine/reference/reference_device.h"

namespace lockstep::engine::optim {
namespace optimizer_test {

using testing::HasSubstr;

// Holds one weight that starts at 1 and is updated by the device's kernel.
struct Weight {
  double value = 1;
  std::array<double, 2> slots{};
  bool decays = true;

  // Applies one update at `step`. `g`: the mean gradient.
  void update(const Optimizer& optimizer, std::int64_t step, double g) {
    StepState state;
    state.step = step;
    state.rate = optimizer.rate;
    const auto bytes = [](double& x) { return reinterpret_cast<std::byte*>(&x); };
    const std::byte* const from[] = {bytes(g)};
    std::byte* const to[] = {bytes(value)};
    ReduceArguments arguments;
    arguments.dtype = DType::kFloat64;
    arguments.from = from;
    arguments.to = to;
    arguments.count = 1;
    arguments.epilogue = Epilogue::kUpdate;
    arguments.update.rule = &optimizer.rule;
    arguments.update.decays = decays;
    // LARS takes the norms of the weight, which is a single number here.
    if (optimizer.rule.needs() == Needs::kLayerNorms)
      arguments.update.local_rate = optimizer.rule.local_rate(g * g, value * value);
    arguments.update.state = &state;
    arguments.update.weight = bytes(value);
    for (std::size_t s = 0; s < optimizer.rule.slots(); ++s) {
      arguments.update.slots[s] = bytes(slots[s]);
    }
    reference_ops(DType::kFloat64)->reduce(arguments);
  }
};

// Gradients of three steps. The expected weights after each step were computed by hand.
constexpr std::array<double, 3> kGradients{1.0, -2.0, 0.5};

std::array<double, 3> path(const Optimizer& optimizer) {
  Weight weight;
  std::array<double, 3> values{};
  for (std::size_t i = 0; i < 3; ++i) {
    weight.update(optimizer, std::int64_t(i), kGradients[i]);
    values[i] = weight.value;
  }
  return values;
}

void expect_path(const Optimizer& optimizer, std::array<double, 3> expected) {
  const std::array<double, 3> values = path(optimizer);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-13) << optimizer.describe() << ", step " << i;
  }
}

TEST(Optimizer, SgdGoesAgainstTheGradient) {
  // The moves are 1 - 0.1 * 1; + 0.1 * 2; - 0.1 * 0.5.
  expect_path(sgd({.rate = 0.1}), {0.9, 1.1, 1.05});
}

TEST(Optimizer, MomentumKeepsAPartOfTheLastMove) {
  // The velocities are v = 1, -1.1, -0.49.
  expect_path(sgd({.rate = 0.1, .momentum = 0.9}), {0.9, 1.01, 1.059});
}

TEST(Optimizer, NesterovLooksAhead) {
  // The moves are g + 0.9 v = 1.9, -2.99, 0.059.
  expect_path(sgd({.rate = 0.1, .momentum = 0.9, .nesterov = true}), {0.81, 1.109, 1.1031});
}

TEST(Optimizer, WeightDecayOfSgdIsPartOfTheGradient) {
  // The gradients are 1 + 0.5 * 1 = 1.5; -2 + 0.5 * 0.85 = -1.575; 0.5 + 0.5 * 1.0075 = 1.00375.
  expect_path(sgd({.rate = 0.1, .weight_decay = 0.5}), {0.85, 1.0075, 0.907125});
  // With momentum, v is 1.5; 0.9 * 1.5 - 1.575 = -0.225; 0.9 * -0.225 + 0.5 + 0.5 * 0.8725.
  expect_path(sgd({.rate = 0.1, .momentum = 0.9, .weight_decay = 0.5}),
              {0.85, 0.8725, 0.8725 - 0.1 * 0.73375});
}

// With beta1 = 0.5 and beta2 = 0.75, the moments and their corrections are short fractions:
//   m = 1/2, -3/4, -1/8      corrections 1/2, 3/4, 7/8         mhat = 1, -1, -1/7
//   v = 1/4, 19/16, 61/64    corrections 1/4, 7/16, 37/64      vhat = 1, 19/7, 61/37
TEST(Optimizer, AdamDividesTheCorrectedMeanByTheRootOfTheCorrectedSquare) {
  const double first = 1 - 0.1 / (1 + 0.01);
  const double second = first + 0.1 / (std::sqrt(19.0 / 7) + 0.01);
  const double third = second + 0.1 / 7 / (std::sqrt(61.0 / 37) + 0.01);
  expect_path(adam({.rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.01}),
              {first, second, third});
}

TEST(Optimizer, AdamWDecaysTheWeightApartFromTheGradient) {
  const double first = 1 - 0.1 * 0.5 * 1 - 0.1 / (1 + 0.01);
  const double second = first - 0.1 * 0.5 * first + 0.1 / (std::sqrt(19.0 / 7) + 0.01);
  const double third = second - 0.1 * 0.5 * second + 0.1 / 7 / (std::sqrt(61.0 / 37) + 0.01);
  expect_path(
      adamw({.rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.01, .weight_decay = 0.5}),
      {first, second, third});
}

TEST(Optimizer, WeightDecayOfAdamIsPartOfTheGradient) {
  // The gradients of the three steps include 0.5 w; the moments follow from them.
  const auto options =
      AdamOptions{.rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.01, .weight_decay = 0.5};
  const double g0 = 1 + 0.5;
  const double first = 1 - 0.1 * g0 / (g0 + 0.01);
  const double g1 = -2 + 0.5 * first;
  const double m1 = (0.25 * g0 + 0.5 * g1) / 0.75;
  const double v1 = (0.75 * 0.25 * g0 * g0 + 0.25 * g1 * g1) / 0.4375;
  const double second = first - 0.1 * m1 / (std::sqrt(v1) + 0.01);
  const double g2 = 0.5 + 0.5 * second;
  const double m2 = (0.125 * g0 + 0.25 * g1 + 0.5 * g2) / 0.875;
  const double v2 = (0.5625 * 0.25 * g0 * g0 + 0.75 * 0.25 * g1 * g1 + 0.25 * g2 * g2) / 0.578125;
  expect_path(adam(options), {first, second, second - 0.1 * m2 / (std::sqrt(v2) + 0.01)});
}

TEST(Optimizer, WhatDoesNotDecayMovesAsWithoutDecay) {
  for (const auto& [decayed, plain] :
       {std::pair(sgd({.weight_decay = 0.5}), sgd()),
        std::pair(sgd({.momentum = 0.9, .weight_decay = 0.5}), sgd({.momentum = 0.9})),
        std::pair(adam({.weight_decay = 0.5}), adam()),
        std::pair(adamw({.weight_decay = 0.5}), adamw())}) {
    Weight weight, other;
    weight.decays = false;
    for (std::int64_t step = 0; step < 3; ++step) {
      weight.update(decayed, step, kGradients[std::size_t(step)]);
      other.update(plain, step, kGradients[std::size_t(step)]);
    }
    EXPECT_EQ(weight.value, other.value) << decayed.describe();
  }
}

TEST(Optimizer, LarsMovesAWeightInProportionToItsNorm) {
  const Optimizer optimizer =
      lars({.rate = 2, .momentum = 0.5, .weight_decay = 0.25, .trust = 0.1, .epsilon = 0.05});
  double w = 1, v = 0;
  std::array<double, 3> expected{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double g = kGradients[i];
    const double local = 0.1 * std::abs(w) / (std::abs(g) + 0.25 * std::abs(w) + 0.05);
    v = 0.5 * v + 2 * local * (g + 0.25 * w);
    w -= v;
    expected[i] = w;
  }
  expect_path(optimizer, expected);
  EXPECT_EQ(optimizer.rule.local_rate(0, 4), 1);
  EXPECT_EQ(optimizer.rule.local_rate(4, 0), 1);
  EXPECT_EQ(lars({.trust = 0.1}).rule.local_rate(4, 9), 0.1 * 3 / 2);
}

TEST(Optimizer, AWeightOfZeroWithoutGradientStaysZero) {
  // The padding between parameters depends on it.
  for (const Optimizer& optimizer :
       {sgd({.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}), adam({.weight_decay = 0.1}),
        adamw({.weight_decay = 0.1}), lars({.weight_decay = 0.1})}) {
    Weight weight;
    weight.value = 0;
    for (std::int64_t step = 0; step < 3; ++step) weight.update(optimizer, step, 0);
    EXPECT_EQ(weight.value, 0) << optimizer.describe();
  }
}

TEST(Optimizer, TheRuleHasWhatTheOptionsSay) {
  const Optimizer s = sgd({.rate = 0.2,
                           .momentum = 0.8,
                           .nesterov = true,
                           .weight_decay = 0.01,
                           .decay_all = true,
                           .clip_norm = 5,
                           .schedule = schedule("constant")});
  EXPECT_EQ(s.rate, 0.2);
  EXPECT_EQ(s.rule, (UpdateRule{.kind = UpdateKind::kSgd,
                                .nesterov = true,
                                .momentum = 0.8,
                                .weight_decay = 0.01,
                                .decay_all = true,
                                .clip_norm = 5,
                                .scaling = {}}));
  EXPECT_EQ(s.rule.needs(), Needs::kGlobalNorm);
  EXPECT_EQ(s.schedule.kind, Schedule::Kind::kConstant);
  EXPECT_EQ(sgd().rule.slots(), 0u);
  EXPECT_EQ(s.rule.slots(), 1u);
  EXPECT_EQ(adam().rule.slots(), 2u);
  EXPECT_EQ(adam().rule.needs(), Needs::kNothing);
  EXPECT_EQ(adamw({.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-6, .weight_decay = 0.1}).rule,
            (UpdateRule{.kind = UpdateKind::kAdamW,
                        .beta1 = 0.8,
                        .beta2 = 0.9,
                        .epsilon = 1e-6,
                        .weight_decay = 0.1,
                        .scaling = {}}));
  EXPECT_TRUE(adam({.decay_all = true}).rule.decay_all);
  const Optimizer l =
      lars({.rate = 3, .momentum = 0.8, .weight_decay = 0.1, .trust = 0.02, .epsilon = 1e-6});
  EXPECT_EQ(l.rate, 3);
  EXPECT_EQ(l.rule, (UpdateRule{.kind = UpdateKind::kLars,
                                .momentum = 0.8,
                                .epsilon = 1e-6,
                                .weight_decay = 0.1,
                                .trust = 0.02,
                                .scaling = {}}));
  EXPECT_EQ(l.rule.needs(), Needs::kLayerNorms);
  EXPECT_EQ(l.rule.slots(), 1u);
  // A velocity of SGD does not include the rate, so it must not be mistaken for one of LARS.
  EXPECT_STRNE(l.rule.slot_name(0), s.rule.slot_name(0));
}

TEST(Optimizer, DescribesAllThatChangesItsResult) {
  EXPECT_EQ(sgd({.rate = 0.05, .momentum = 0.9}).describe(),
            "sgd rate 0.05 momentum 0.9, cosine to 0");
  EXPECT_EQ(sgd({.rate = 0.05,
                 .momentum = 0.9,
                 .nesterov = true,
                 .weight_decay = 0.0001,
                 .clip_norm = 1,
                 .schedule = schedule("constant:warmup=5")})
                .describe(),
            "sgd rate 0.05 momentum 0.9 nesterov weight_decay 0.0001 of weights clip_norm 1, "
            "constant, 5 steps of warm-up");
  EXPECT_EQ(adamw({.weight_decay = 0.1, .decay_all = true}).describe(),
            "adamw rate 0.001 beta1 0.9 beta2 0.999 epsilon 1e-08 weight_decay 0.1 of all "
            "parameters, cosine to 0");
  EXPECT_EQ(lars({.weight_decay = 0.1}).describe(),
            "lars rate 1 momentum 0.9 trust 0.001 epsilon 0 weight_decay 0.1 of weights, cosine "
            "to 0");
}

template <class Make>
std::string error_of(Make make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(Optimizer, OptionsThatMakeNoSenseAreNamed) {
  EXPECT_EQ(error_of([] { sgd({.rate = -0.1}); }), "sgd: rate is -0.1; it must be 0 or more");
  EXPECT_EQ(error_of([] { sgd({.momentum = 1}); }),
            "sgd: momentum is 1; it must be at least 0 and below 1");
  EXPECT_THAT(error_of([] { sgd({.nesterov = true}); }), HasSubstr("nesterov needs a momentum"));
  EXPECT_THAT(error_of([] { sgd({.weight_decay = -1}); }), HasSubstr("weight_decay is -1"));
  EXPECT_THAT(error_of([] { sgd({.clip_norm = -1}); }), HasSubstr("clip_norm is -1"));
  EXPECT_THAT(error_of([] { sgd({.rate = std::numeric_limits<double>::infinity()}); }),
              HasSubstr("rate is inf"));
  EXPECT_THAT(error_of([] { sgd({.rate = std::nan("")}); }), HasSubstr("rate is nan"));
  EXPECT_THAT(error_of([] { sgd({.schedule = {.warm_up = -1}}); }), HasSubstr("warm_up is -1"));
  EXPECT_THAT(error_of([] { sgd({.schedule = {.last = 2}}); }), HasSubstr("last is 2"));
  EXPECT_THAT(error_of([] { adam({.beta1 = 1}); }), HasSubstr("adam: beta1 is 1"));
  EXPECT_THAT(error_of([] { adamw({.beta2 = -0.1}); }), HasSubstr("adamw: beta2 is -0.1"));
  EXPECT_THAT(error_of([] { adam({.epsilon = 0}); }), HasSubstr("epsilon is 0"));
  EXPECT_THAT(error_of([] { lars({.trust = 0}); }), HasSubstr("lars: trust is 0"));
  EXPECT_THAT(error_of([] { lars({.momentum = 1}); }), HasSubstr("lars: momentum is 1"));
  EXPECT_THAT(error_of([] { lars({.epsilon = -1}); }), HasSubstr("lars: epsilon is -1"));
}

}  // namespace optimizer_test
}  // namespace lockstep::engine::optim
