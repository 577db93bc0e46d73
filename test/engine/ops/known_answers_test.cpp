// SPDX-License-Identifier: MIT
// Tests small cases whose answers were computed by hand, so that the oracle is not only compared
// with itself. They hold on every device.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/runtime/devices.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {
namespace known_answers_test {

class KnownAnswers : public testing::Test {
 protected:
  void expect(const Machine& machine, const Operand& got, const std::vector<double>& answer) {
    expect_close(machine, {got.values()}, {answer});
  }
  // Returns the state of a batch of one example, with weight 1 in the mean.
  StepState one_row() {
    StepState state;
    state.examples = 1;
    state.inverse_examples = 1;
    return state;
  }

  std::vector<std::unique_ptr<Device>> devices_ = host_devices();
  std::vector<Machine> machines_ = all_machines(devices_);
};

TEST_F(KnownAnswers, Dense) {
  const StepState state = one_row();
  const DenseSpec spec{2, 2, true, Activation::kRelu};
  for (Machine& m : machines_) {
    const Operand x = m.operand({1, 2}, {1, 2}), w = m.operand({2, 2}, {3, 4, 5, -6});
    const Operand b = m.operand({2}, {0.5, 1}), y = m.empty({1, 2});
    m.ops().dense_forward(&state, spec, x.tensor, w.tensor, b.tensor, y.tensor);
    expect(m, y, {11.5, 0});
    const Operand dy = m.operand({1, 2}, {2, 3}), dx = m.empty({1, 2});
    const Operand dw = m.operand({2, 2}, {10, 20, 30, 40}), db = m.operand({2}, {100, 200});
    m.ops().dense_backward(&state, spec, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor,
                           dw.tensor, db.tensor, true);
    expect(m, dx, {6, 8});
    expect(m, dw, {12, 24, 30, 40});
    expect(m, db, {102, 200});
  }
}

TEST_F(KnownAnswers, Convolution) {
  const StepState state = one_row();
  for (Machine& m : machines_) {
    const Operand x = m.operand({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
    const Operand w = m.operand({1, 2, 2, 1}, {1, 2, 3, 4}), b = m.operand({1}, {0.5});
    const Operand y = m.empty({1, 2, 2, 1});
    ConvolutionSpec spec{3, 3, 1, 1, 2, 2, 1, 0};
    m.ops().convolution_forward(&state, spec, x.tensor, w.tensor, b.tensor, y.tensor);
    expect(m, y, {37.5, 47.5, 67.5, 77.5});
    const Operand dy = m.operand({1, 2, 2, 1}, {1, 0, 0, 2}), dx = m.empty({1, 3, 3, 1});
    const Operand dw = m.empty({1, 2, 2, 1}), db = m.empty({1});
    m.ops().convolution_backward(&state, spec, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor,
                                 dw.tensor, db.tensor, false);
    expect(m, dx, {1, 2, 0, 3, 6, 4, 0, 6, 8});
    expect(m, dw, {11, 14, 20, 23});
    expect(m, db, {3});

    spec.stride = 2;
    spec.padding = 1;
    spec.bias = false;
    m.ops().convolution_forward(&state, spec, x.tensor, w.tensor, {}, y.tensor);
    expect(m, y, {4, 18, 36, 77});
  }
}

TEST_F(KnownAnswers, ConvolutionWeightsLieFilterByFilter) {
  const StepState state = one_row();
  for (Machine& m : machines_) {
    const Operand x = m.operand({1, 1, 2, 2}, {2, 3, 17, 19});
    const Operand w = m.operand({2, 1, 1, 2}, {5, 7, 11, 13}), y = m.empty({1, 1, 2, 2});
    m.ops().convolution_forward(&state, {1, 2, 2, 2, 1, 1, 1, 0, false}, x.tensor, w.tensor, {},
                                y.tensor);
    expect(m, y, {31, 61, 218, 434});
  }
}

TEST_F(KnownAnswers, Pools) {
  const StepState state = one_row();
  for (Machine& m : machines_) {
    const Operand x = m.operand({1, 2, 2, 1}, {1, 5, 5, 2}), y = m.empty({1, 1, 1, 1});
    const Operand dy = m.operand({1, 1, 1, 1}, {3}), dx = m.empty({1, 2, 2, 1});
    const PoolSpec largest{PoolKind::kMax, 2, 2, 1, 2, 2, 2, 0};
    const Buffer workspace = m.device().allocate(m.ops().pool_workspace(largest, 1));
    m.ops().pool_forward(&state, largest, x.tensor, y.tensor, workspace.data());
    expect(m, y, {5});
    m.ops().pool_backward(&state, largest, dy.tensor, dx.tensor, workspace.data());
    expect(m, dx, {0, 3, 0, 0});  // the first of equal ones

    // Four of the nine places of the window are inside the image, and only they count.
    const PoolSpec average{PoolKind::kAverage, 2, 2, 1, 3, 3, 2, 1};
    m.ops().pool_forward(&state, average, x.tensor, y.tensor, nullptr);
    expect(m, y, {3.25});
    m.ops().pool_backward(&state, average, dy.tensor, dx.tensor, nullptr);
    expect(m, dx, {0.75, 0.75, 0.75, 0.75});
  }
}

TEST_F(KnownAnswers, SoftmaxCrossEntropy) {
  StepState state = one_row();
  state.examples = 3;
  state.inverse_examples = 0.25;
  state.loss_scale = 8;
  for (Machine& m : machines_) {
    if (m.dtype() == DType::kBFloat16) continue;  // cannot represent log 3 or 1e4
    const double three = double(float(std::log(3.0)));
    const Operand logits = m.operand({3, 2}, {0, three, 1, 1, 1e4, -1e4});
    const Operand target = m.operand({3, 1}, {0, 0, 1}, DType::kFloat32);
    const Operand dlogits = m.empty({3, 2}), probabilities = m.empty({3, 2});
    const Operand losses = m.empty({3}, DType::kFloat64), correct = m.empty({3}, DType::kFloat64);
    m.ops().softmax_cross_entropy(&state, 0, logits.tensor, target.tensor, dlogits.tensor,
                                  losses.tensor, correct.tensor);
    EXPECT_NEAR(losses.values()[0], std::log(4.0), 1e-6);
    EXPECT_NEAR(losses.values()[1], std::log(2.0), 1e-6);
    EXPECT_EQ(losses.values()[2], 2e4);
    EXPECT_EQ(correct.values(), (std::vector<double>{0, 1, 0}));
    const std::vector<double> gradients = dlogits.values(), answer = {-1.5, 1.5, -1, 1, 2, -2};
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(gradients[i], answer[i], 1e-6);
    m.ops().softmax(&state, logits.tensor, probabilities.tensor);
    const std::vector<double> p = probabilities.values(), of = {0.25, 0.75, 0.5, 0.5, 1, 0};
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(p[i], of[i], 1e-6);
    EXPECT_NEAR(m.ops().batch_sum(&state, losses.tensor), std::log(8.0) + 2e4, 1e-6);
  }
}

TEST_F(KnownAnswers, SmoothedSoftmaxCrossEntropy) {
  StepState state = one_row();
  state.examples = 2;
  state.inverse_examples = 0.25;
  state.loss_scale = 8;
  for (Machine& m : machines_) {
    if (m.dtype() == DType::kBFloat16) continue;  // cannot represent log 3
    // The probabilities are p = 1/4, 3/4. With smoothing of 0.2 over two labels, the targets are q
    // = 0.9, 0.1, then q = 0.1, 0.9.
    const double three = double(float(std::log(3.0)));
    const Operand logits = m.operand({2, 2}, {0, three, 0, three});
    const Operand target = m.operand({2, 1}, {0, 1}, DType::kFloat32);
    const Operand dlogits = m.empty({2, 2});
    const Operand losses = m.empty({2}, DType::kFloat64), correct = m.empty({2}, DType::kFloat64);
    m.ops().softmax_cross_entropy(&state, 0.2, logits.tensor, target.tensor, dlogits.tensor,
                                  losses.tensor, correct.tensor);
    EXPECT_NEAR(losses.values()[0], 0.9 * std::log(4.0) + 0.1 * std::log(4.0 / 3), 1e-6);
    EXPECT_NEAR(losses.values()[1], 0.1 * std::log(4.0) + 0.9 * std::log(4.0 / 3), 1e-6);
    EXPECT_EQ(correct.values(), (std::vector<double>{0, 1}));
    const std::vector<double> gradients = dlogits.values(), answer = {-1.3, 1.3, 0.3, -0.3};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(gradients[i], answer[i], 1e-6);
  }
}

TEST_F(KnownAnswers, SquaredError) {
  StepState state = one_row();
  state.inverse_examples = 0.5;
  for (Machine& m : machines_) {
    const Operand y = m.operand({1, 2}, {1, 4}), dy = m.empty({1, 2});
    const Operand target = m.operand({1, 2}, {0, 2}, DType::kFloat32);
    const Operand losses = m.empty({1}, DType::kFloat64);
    m.ops().squared_error(&state, y.tensor, target.tensor, dy.tensor, losses.tensor);
    expect(m, losses, {2.5});
    expect(m, dy, {0.5, 1});
  }
}

// batch_sum adds the first (n + 1) / 2 rows and the rest, recursively. 2^53 absorbs a single 1, but
// not two that were added first.
TEST_F(KnownAnswers, BatchSumIsABalancedTree) {
  StepState state = one_row();
  state.examples = 4;
  const double large = 9007199254740992.0;
  for (Machine& m : machines_) {
    const Operand rows = m.operand({5}, {large, 0, 1, 1, 1234}, DType::kFloat64);
    EXPECT_EQ(m.ops().batch_sum(&state, rows.tensor), large + 2);
    const Operand other = m.operand({5}, {large, 1, 1, 0, 1234}, DType::kFloat64);
    EXPECT_EQ(m.ops().batch_sum(&state, other.tensor), large);
    state.examples = 0;
    EXPECT_EQ(m.ops().batch_sum(&state, other.tensor), 0.0);
    state.examples = 4;
  }
}

// At a rate of one half, half of the units of a large batch are dropped and the others are doubled.
// Another step or example drops others.
TEST_F(KnownAnswers, DropoutDropsItsShareAndDrawsAnewEachStep) {
  for (Machine& m : machines_) {
    std::vector<std::int64_t> ids = {5, 6};
    StepState state = one_row();
    state.examples = 2;
    state.ids = ids.data();
    const std::size_t units = 4000;
    const Operand x = m.operand({2, units}, std::vector<double>(2 * units, 1.0));
    const Operand y = m.empty({2, units});
    const auto mask_at = [&](std::int64_t step) {
      state.step = step;
      m.ops().dropout(&state, {0.5, 77}, x.tensor, y.tensor);
      return y.values();
    };
    const std::vector<double> first = mask_at(0), second = mask_at(1);
    EXPECT_EQ(mask_at(0), first);
    EXPECT_NE(first, second);
    double kept = 0, both_rows = 0, both_steps = 0;
    for (std::size_t j = 0; j < units; ++j) {
      EXPECT_TRUE(first[j] == 0 || first[j] == 2);
      kept += first[j] / 2;
      both_rows += first[j] * first[units + j] / 4;
      both_steps += first[j] * second[j] / 4;
    }
    EXPECT_NEAR(kept / units, 0.5, 0.05);
    EXPECT_NEAR(both_rows / units, 0.25, 0.05);
    EXPECT_NEAR(both_steps / units, 0.25, 0.05);
  }
}

// Returns one weight after an update rule was applied to each gradient.
double updated(Machine& m, const UpdateRule& rule, double weight, std::vector<double> gradients,
               double scale = 1) {
  const Operand w = m.operand({1}, {weight});
  const Operand slot[2] = {m.operand({1}, {0}), m.operand({1}, {0})};
  StepState state;
  state.rate = 0.2;
  for (double gradient : gradients) {
    const Operand g = m.operand({1}, {gradient});
    const std::byte* from[] = {g.tensor.data};
    std::byte* to[] = {w.tensor.data};
    ReduceArguments a;
    a.dtype = m.dtype();
    a.from = from;
    a.to = to;
    a.count = 1;
    a.epilogue = Epilogue::kUpdate;
    a.scale = scale;
    a.update.rule = &rule;
    a.update.state = &state;
    a.update.weight = w.tensor.data;
    a.update.slots = {slot[0].tensor.data, slot[1].tensor.data};
    m.reduce(a);
    ++state.step;
  }
  return w.values()[0];
}

TEST_F(KnownAnswers, SgdTakesTheStepsOfItsFormula) {
  for (Machine& m : machines_) {
    if (m.dtype() == DType::kBFloat16) continue;  // such weights have masters
    SCOPED_TRACE(m.name());
    UpdateRule rule;
    EXPECT_NEAR(updated(m, rule, 1, {0.5, -0.25}), 1 - 0.2 * 0.5 + 0.2 * 0.25, 1e-6);
    EXPECT_NEAR(updated(m, rule, 1, {0.5}, 0.5), 1 - 0.2 * 0.25, 1e-6);  // clipped to one half
    rule.weight_decay = 0.1;
    EXPECT_NEAR(updated(m, rule, 1, {0.5}), 1 - 0.2 * (0.5 + 0.1), 1e-6);
    // The velocity is v = 0.6, then 0.9 0.6 + 0.588 = 1.128.
    rule.momentum = 0.9;
    EXPECT_NEAR(updated(m, rule, 1, {0.5, 0.5}), 1 - 0.2 * 0.6 - 0.2 * 1.128, 1e-6);
    // The values are g = 0.6, 0.5772 and v = 0.6, 1.1172; each step applies g + 0.9 v.
    rule.nesterov = true;
    EXPECT_NEAR(updated(m, rule, 1, {0.5, 0.5}), 0.455464, 1e-6);
  }
}

// With a constant gradient g, the corrected moments are g and g^2 at every step. Each step is then
// rate g / (|g| + epsilon), however large g is.
TEST_F(KnownAnswers, AdamTakesEvenStepsForAConstantGradient) {
  for (Machine& m : machines_) {
    if (m.dtype() == DType::kBFloat16) continue;  // such weights have masters
    SCOPED_TRACE(m.name());
    UpdateRule rule;
    rule.kind = UpdateKind::kAdam;
    for (double g : {3.0, -0.125}) {
      const double step = 0.2 * g / (std::abs(g) + 1e-8);
      EXPECT_NEAR(updated(m, rule, 1, {g, g, g}), 1 - 3 * step, 3e-6);
      EXPECT_NEAR(updated(m, rule, 1, {g}, 0.25), 1 - step, 1e-6);
    }
    rule.epsilon = 1;
    EXPECT_NEAR(updated(m, rule, 1, {3, 3}), 1 - 2 * 0.2 * 3 / 4, 3e-6);
    // With other gradients, the moments of the second step are m = (0.1 0.9 + 0.1 2) and v = (0.001
    // 0.999 + 0.001 4).
    const double mhat = 0.29 / (1 - 0.81), vhat = 0.004999 / (1 - 0.998001);
    EXPECT_NEAR(updated(m, rule, 1, {1, 2}), 1 - 0.1 - 0.2 * mhat / (std::sqrt(vhat) + 1), 3e-6);
    // In Adam, decay is part of the gradient; in AdamW, it is separate from the moments.
    rule.epsilon = 1e-8;
    rule.weight_decay = 0.5;
    EXPECT_NEAR(updated(m, rule, 1, {-0.5 + 1e-3}), 0.8, 1e-4);
    rule.kind = UpdateKind::kAdamW;
    EXPECT_NEAR(updated(m, rule, 1, {-0.25}), 1 - 0.2 * 0.5 + 0.2, 1e-5);
  }
}

}  // namespace known_answers_test
}  // namespace lockstep::engine
