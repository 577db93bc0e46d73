// SPDX-License-Identifier: MIT
// Tests that every device agrees with the float64 reference for every element type that it
// supports.
#include <gtest/gtest.h>

#include <limits>

#include "engine/base/error.h"
#include "test/engine/ops/conformance.h"

namespace lockstep::engine {
namespace conformance_test {

Results dense_case(Machine& m, const DenseSpec& spec, Rows rows, bool accumulate) {
  const StepState* const state = m.publish(state_of(rows.used));
  const Operand x =
      m.operand({rows.planned, spec.inputs}, random_batch(rows.planned, rows.used, spec.inputs, 1));
  const Operand w =
      m.operand({spec.outputs, spec.inputs}, random_numbers(spec.outputs * spec.inputs, 2));
  const Operand b = m.operand({spec.outputs}, random_numbers(spec.outputs, 3));
  const Tensor bias = spec.bias ? b.tensor : Tensor{};
  const Operand y = m.empty({rows.planned, spec.outputs});
  m.ops().dense_forward(state, spec, x.tensor, w.tensor, bias, y.tensor);
  Results results = {y.values(rows.used)};

  const Operand past = m.operand({rows.planned, spec.outputs},
                                 random_batch(rows.planned, rows.used, spec.outputs, 4));
  for (bool want_inputs : {true, false}) {
    const Operand dy = m.operand({rows.planned, spec.outputs},
                                 random_batch(rows.planned, rows.used, spec.outputs, 5));
    const Operand dx = m.empty({rows.planned, spec.inputs});
    const Operand dw = m.operand(w.tensor.shape, random_numbers(w.tensor.elements(), 6));
    const Operand db = m.operand(b.tensor.shape, random_numbers(spec.outputs, 7));
    m.ops().dense_backward(state, spec, x.tensor, past.tensor, dy.tensor, w.tensor,
                           want_inputs ? dx.tensor : Tensor{}, dw.tensor,
                           spec.bias ? db.tensor : Tensor{}, accumulate);
    if (want_inputs) results.push_back(dx.values(rows.used));
    results.push_back(dw.values());
    results.push_back(db.values());
  }
  return results;
}

TEST_F(Conformance, DenseLayers) {
  const std::size_t sizes[][2] = {{1, 1}, {1, 7}, {7, 1}, {13, 5}, {64, 33}, {129, 10}};
  for (const auto& [inputs, outputs] : sizes) {
    for (Rows rows : {Rows{1, 1}, Rows{5, 5}, Rows{6, 2}, Rows{3, 0}, Rows{33, 33}}) {
      for (int variant = 0; variant < 8; ++variant) {
        DenseSpec spec{inputs, outputs};
        spec.bias = variant % 2 == 0;
        spec.activation = variant / 2 % 2 == 0 ? Activation::kNone : Activation::kRelu;
        const bool accumulate = variant / 4 == 1;
        compare_products(fmt::format("dense {} to {}, {} of {} rows, variant {}", inputs, outputs,
                                     rows.used, rows.planned, variant),
                         [&](Machine& m) { return dense_case(m, spec, rows, accumulate); });
        if (enough_failed()) return;
      }
    }
  }
}

Results convolution_case(Machine& m, const ConvolutionSpec& spec, Rows rows, bool accumulate) {
  const StepState* const state = m.publish(state_of(rows.used));
  const Shape in{rows.planned, spec.height, spec.width, spec.channels};
  const Shape out{rows.planned, spec.output_height(), spec.output_width(), spec.filters};
  const Shape kernel{spec.filters, spec.kernel_height, spec.kernel_width, spec.channels};
  const std::size_t inputs = in.elements() / rows.planned, outputs = out.elements() / rows.planned;
  const Operand x = m.operand(in, random_batch(rows.planned, rows.used, inputs, 1));
  const Operand w = m.operand(kernel, random_numbers(kernel.elements(), 2));
  const Operand b = m.operand({spec.filters}, random_numbers(spec.filters, 3));
  const Operand y = m.empty(out);
  m.ops().convolution_forward(state, spec, x.tensor, w.tensor, spec.bias ? b.tensor : Tensor{},
                              y.tensor);
  Results results = {y.values(rows.used)};

  const Operand past = m.operand(out, random_batch(rows.planned, rows.used, outputs, 4));
  for (bool want_inputs : {true, false}) {
    const Operand dy = m.operand(out, random_batch(rows.planned, rows.used, outputs, 5));
    const Operand dx = m.empty(in);
    const Operand dw = m.operand(kernel, random_numbers(kernel.elements(), 6));
    const Operand db = m.operand({spec.filters}, random_numbers(spec.filters, 7));
    m.ops().convolution_backward(state, spec, x.tensor, past.tensor, dy.tensor, w.tensor,
                                 want_inputs ? dx.tensor : Tensor{}, dw.tensor,
                                 spec.bias ? db.tensor : Tensor{}, accumulate);
    if (want_inputs) results.push_back(dx.values(rows.used));
    results.push_back(dw.values());
    results.push_back(db.values());
  }
  return results;
}

// The columns are height, width, channels, filters, kernel height, kernel width, stride, padding.
constexpr std::size_t kConvolutions[][8] = {
    {1, 1, 1, 1, 1, 1, 1, 0},
    {5, 4, 3, 2, 1, 1, 1, 0},
    {6, 6, 17, 5, 1, 1, 2, 0},
    {4, 4, 2, 3, 1, 1, 1, 1},
    {7, 6, 1, 8, 3, 3, 1, 0},
    {7, 6, 3, 16, 3, 3, 1, 1},
    {8, 8, 16, 16, 3, 3, 1, 1},
    {9, 8, 5, 4, 3, 3, 2, 1},
    {9, 9, 16, 20, 3, 3, 2, 0},
    {10, 7, 4, 6, 3, 3, 3, 2},
    {8, 8, 1, 6, 5, 5, 1, 2},
    {9, 10, 6, 16, 5, 5, 1, 0},
    {9, 9, 3, 1, 5, 5, 2, 2},
    {11, 11, 2, 7, 5, 5, 3, 1},
    {6, 9, 4, 5, 1, 3, 1, 0},
    {9, 6, 4, 5, 3, 2, 1, 1},
    {3, 3, 2, 130, 3, 3, 1, 0},
    // These run the kernels of lockstep: whole and partial tiles, every padding, panels of all
    // widths.
    {6, 6, 16, 64, 3, 3, 1, 0},
    {7, 9, 16, 48, 3, 3, 1, 1},
    {8, 5, 32, 16, 3, 3, 1, 2},
    {9, 6, 48, 80, 3, 3, 1, 1},
    {3, 4, 16, 16, 3, 3, 1, 0},
    {5, 5, 80, 32, 3, 3, 1, 1},
    // These run the gradient kernels of lockstep on a GPU.
    {6, 7, 32, 64, 3, 3, 1, 0},
    {5, 4, 32, 32, 3, 3, 1, 1},
    // These run as matrix products.
    {5, 4, 32, 48, 1, 1, 1, 0},
    {6, 7, 48, 32, 1, 1, 2, 0},
    {4, 5, 128, 144, 3, 3, 2, 1},
};

// The shapes have few channels, for which lockstep has kernels on processors and GPUs.
constexpr std::size_t kFewChannels[][8] = {
    {9, 9, 1, 32, 3, 3, 1, 0},  {8, 7, 3, 48, 3, 3, 2, 1},   {10, 11, 2, 16, 5, 5, 1, 2},
    {5, 5, 4, 16, 4, 3, 1, 0},  {11, 12, 3, 48, 7, 7, 2, 3}, {4, 28, 1, 48, 3, 3, 1, 0},
    {5, 26, 3, 16, 3, 3, 2, 1},
};

// Provides one test per shape, for parallel runs. The parameter is the shape's index.
class ConvolutionConformance : public Conformance, public testing::WithParamInterface<std::size_t> {
 protected:
  void compare_all(const std::size_t (&shape)[8]);
};

// Compares the variants of a shape. A GPU's library compiles a kernel for each shape with ReLU and
// no bias in half a second, so only some of those run there.
void ConvolutionConformance::compare_all(const std::size_t (&c)[8]) {
  int counter = int(4 * GetParam());
  const Rows many = c[2] * c[3] > 3000 ? Rows{9, 9} : Rows{35, 35};  // wide ones are slow
  for (Rows rows : {Rows{1, 1}, Rows{4, 0}, Rows{5, 2}, many}) {
    ++counter;  // cycles variants over all window shapes
    for (int variant : {counter % 8, (counter + 5) % 8}) {
      ConvolutionSpec spec{c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
      spec.bias = variant % 2 == 0;
      spec.activation = variant / 2 % 2 == 0 ? Activation::kNone : Activation::kRelu;
      const bool accumulate = variant / 4 == 1;
      compare_products(
          fmt::format("convolution {}x{}x{} to {} by {}x{}, stride {}, padding {}, {} of {} "
                      "rows, variant {}",
                      c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], rows.used, rows.planned,
                      variant),
          [&](Machine& m) { return convolution_case(m, spec, rows, accumulate); },
          [&](const Machine& m) {
            const bool compiled = !spec.bias && spec.activation == Activation::kRelu;
            return !compiled || counter % 16 == 3 || !m.on_gpu();
          },
          &spec);
      if (enough_failed()) return;
    }
  }
}

class ConvolutionsOfAllKinds : public ConvolutionConformance {};
TEST_P(ConvolutionsOfAllKinds, AreThoseOfTheReference) {
  compare_all(kConvolutions[GetParam()]);
}
INSTANTIATE_TEST_SUITE_P(Shapes, ConvolutionsOfAllKinds,
                         testing::Range(std::size_t(0), std::size(kConvolutions)));

class ConvolutionsOfFewChannels : public ConvolutionConformance {};
TEST_P(ConvolutionsOfFewChannels, AreThoseOfTheReference) {
  compare_all(kFewChannels[GetParam()]);
}
INSTANTIATE_TEST_SUITE_P(Shapes, ConvolutionsOfFewChannels,
                         testing::Range(std::size_t(0), std::size(kFewChannels)));

TEST_F(Conformance, FrozenParametersHaveNoGradients) {
  const auto pick = [](int wanted, int bit, const Operand& o) {
    return (wanted & bit) != 0 ? o.tensor : Tensor{};
  };
  // The shapes run the library and both kernels of lockstep.
  for (const ConvolutionSpec& s :
       {ConvolutionSpec{5, 5, 3, 4, 3, 3, 1, 1}, ConvolutionSpec{6, 6, 16, 32, 3, 3, 1, 1},
        ConvolutionSpec{5, 6, 3, 16, 3, 3, 1, 1}}) {
    for (int wanted = 0; wanted < 8; ++wanted) {
      compare_products(
          fmt::format("{} to {} channels, wanted gradients {}", s.channels, s.filters, wanted),
          [&](Machine& m) {
            const StepState* const state = m.publish(state_of(2));
            const Shape in{2, s.height, s.width, s.channels};
            const Shape out{2, s.output_height(), s.output_width(), s.filters};
            const Shape kernel{s.filters, s.kernel_height, s.kernel_width, s.channels};
            const Operand x = m.operand(in, random_numbers(in.elements(), 1));
            const Operand w = m.operand(kernel, random_numbers(kernel.elements(), 2));
            const Operand dy = m.operand(out, random_numbers(out.elements(), 3));
            const Operand dx = m.empty(in), dw = m.empty(kernel), db = m.empty({s.filters});
            m.ops().convolution_backward(state, s, x.tensor, dy.tensor, dy.tensor, w.tensor,
                                         pick(wanted, 1, dx), pick(wanted, 2, dw),
                                         pick(wanted, 4, db), false);
            return Results{{}, dx.values(), dw.values(), db.values()};
          },
          [](const Machine&) { return true; }, &s);
    }
  }
  const DenseSpec dense{6, 5};
  for (int wanted = 0; wanted < 8; ++wanted) {
    compare_products(fmt::format("dense, wanted gradients {}", wanted), [&](Machine& m) {
      const StepState* const state = m.publish(state_of(2));
      const Operand x = m.operand({2, 6}, random_numbers(12, 4));
      const Operand w = m.operand({5, 6}, random_numbers(30, 5));
      const Operand dy = m.operand({2, 5}, random_numbers(10, 6));
      const Operand dx = m.empty({2, 6}), dw = m.empty({5, 6}), db = m.empty({5});
      m.ops().dense_backward(state, dense, x.tensor, dy.tensor, dy.tensor, w.tensor,
                             pick(wanted, 1, dx), pick(wanted, 2, dw), pick(wanted, 4, db), false);
      return Results{dx.values(), dw.values(), db.values()};
    });
  }
}

Results pool_case(Machine& m, const PoolSpec& spec, Rows rows, bool ties) {
  const StepState* const state = m.publish(state_of(rows.used));
  const Shape in{rows.planned, spec.height, spec.width, spec.channels};
  const Shape out{rows.planned, spec.output_height(), spec.output_width(), spec.channels};
  std::vector<double> numbers =
      random_batch(rows.planned, rows.used, in.elements() / rows.planned, 1);
  // The inputs have few distinct values, so most windows have several maxima.
  for (double& number : numbers) number = ties ? std::floor(number * 2) : number;
  const Operand x = m.operand(in, numbers);
  const Operand y = m.empty(out);
  const Buffer workspace = m.ops().allocate(m.ops().pool_workspace(spec, rows.planned), "places");
  m.ops().pool_forward(state, spec, x.tensor, y.tensor, workspace.data());
  const Operand dy =
      m.operand(out, random_batch(rows.planned, rows.used, out.elements() / rows.planned, 2));
  const Operand dx = m.empty(in);
  m.ops().pool_backward(state, spec, dy.tensor, dx.tensor, workspace.data());
  return {y.values(rows.used), dx.values(rows.used)};
}

// The columns are height, width, channels, kernel height, kernel width, stride, padding.
constexpr std::size_t kPools[][7] = {
    {2, 2, 1, 2, 2, 2, 0},
    {5, 5, 3, 2, 2, 2, 0},
    {6, 7, 6, 3, 3, 2, 1},
    {7, 7, 65, 3, 3, 1, 1},
    {9, 8, 2, 3, 3, 3, 1},
    {8, 8, 130, 2, 2, 2, 0},
    {7, 5, 4, 7, 5, 1, 0},
    {7, 9, 3, 5, 5, 3, 2},
    {4, 6, 5, 1, 2, 1, 0},
    {17, 16, 2, 17, 16, 1, 0},
    // These have whole groups of channels; a GPU's thread reads two by two inputs, or fewer.
    {7, 7, 64, 3, 3, 2, 1},
    {7, 8, 16, 3, 3, 2, 0},
    {5, 5, 8, 2, 2, 2, 1},
    {5, 6, 8, 3, 3, 2, 2},
    {1, 1, 8, 3, 3, 2, 1},
    {1, 3, 1, 2, 2, 2, 1},
};

TEST_F(Conformance, Pools) {
  for (const auto& p : kPools) {
    for (PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      for (Rows rows : {Rows{1, 1}, Rows{3, 2}, Rows{2, 0}}) {
        for (bool ties : {false, true}) {
          const PoolSpec spec{kind, p[0], p[1], p[2], p[3], p[4], p[5], p[6]};
          compare(fmt::format("{} pool {}x{}x{} by {}x{}, stride {}, padding {}, ties {}",
                              kind == PoolKind::kMax ? "max" : "average", p[0], p[1], p[2], p[3],
                              p[4], p[5], p[6], ties),
                  [&](Machine& m) { return pool_case(m, spec, rows, ties); });
          if (enough_failed()) return;
        }
      }
    }
  }
}

TEST_F(Conformance, ElementWiseKernels) {
  for (Rows rows : {Rows{1, 1}, Rows{7, 5}, Rows{3, 0}}) {
    for (std::size_t columns : {1u, 3u, 16u, 37u}) {
      for (bool in_place : {false, true}) {
        compare(fmt::format("{} of {} rows, {} columns", rows.used, rows.planned, columns),
                [&](Machine& m) {
                  const StepState* const state = m.publish(state_of(rows.used));
                  const Shape shape{rows.planned, columns};
                  const auto numbers = [&](std::uint64_t seed) {
                    std::vector<double> all = random_batch(rows.planned, rows.used, columns, seed);
                    for (double& number : all) number *= 4;
                    return all;
                  };
                  Results results;
                  // Calls kernel(a, b, to) on new operands; `to` is b itself if in place.
                  const auto call = [&](auto kernel) {
                    const Operand a = m.operand(shape, numbers(1)),
                                  b = m.operand(shape, numbers(2));
                    const Operand other = m.empty(shape);
                    const Operand& to = in_place ? b : other;
                    kernel(a.tensor, b.tensor, to.tensor);
                    results.push_back(to.values(rows.used));
                  };
                  Ops& ops = m.ops();
                  call([&](Tensor, Tensor b, Tensor to) { ops.relu(state, b, to); });
                  call([&](Tensor, Tensor b, Tensor to) { ops.tanh(state, b, to); });
                  call([&](Tensor a, Tensor b, Tensor to) { ops.add(state, a, b, to); });
                  call([&](Tensor a, Tensor b, Tensor to) { ops.relu_gradient(state, a, b, to); });
                  call([&](Tensor a, Tensor b, Tensor to) { ops.tanh_gradient(state, a, b, to); });
                  call([&](Tensor, Tensor b, Tensor to) { ops.softmax(state, b, to); });
                  call([&](Tensor, Tensor b, Tensor to) { ops.copy(state, b, to); });
                  return results;
                });
        if (enough_failed()) return;
      }
    }
  }
}

TEST_F(Conformance, DropoutKeepsTheSameUnits) {
  std::vector<std::int64_t> ids = {40, 7, 1234567890123, 0, 41};
  for (double rate : {0.0, 0.3, 0.9}) {
    for (std::size_t columns : {1u, 4u, 9u, 130u}) {
      compare(fmt::format("dropout {} of {} units", rate, columns), [&](Machine& m) {
        StepState words = state_of(4);
        words.ids = ids.data();
        const StepState* const state = m.publish(words);
        const Operand x = m.operand({5, columns}, random_batch(5, 4, columns, 1));
        const Operand y = m.empty({5, columns});
        m.ops().dropout(state, {rate, 99}, x.tensor, y.tensor);
        m.ops().dropout(state, {rate, 99}, x.tensor, x.tensor);
        return Results{y.values(4), x.values(4)};
      });
    }
  }
}

struct Logits {
  std::size_t columns;
  double size, smoothing;
};

TEST_F(Conformance, Losses) {
  std::vector<Logits> cases;
  for (std::size_t columns : {1u, 2u, 10u, 129u})
    for (double size : {1.0, 30.0, 1e4})
      for (double smoothing : {0.0, 0.3}) cases.push_back({columns, size, smoothing});
  for (Rows rows : {Rows{1, 1}, Rows{6, 4}, Rows{2, 0}}) {
    for (const auto [columns, size, smoothing] : cases) {
      compare(fmt::format("{} rows of {} columns, numbers up to {}, smoothing {}", rows.used,
                          columns, size, smoothing),
              [&, columns = columns, size = size, smoothing = smoothing](Machine& m) {
                const StepState* const state = m.publish(state_of(rows.used));
                std::vector<double> numbers = random_batch(rows.planned, rows.used, columns, 1);
                for (double& number : numbers) number = double(float(number * size));
                std::vector<double> classes(rows.planned, -7);
                for (std::size_t r = 0; r < rows.used; ++r) classes[r] = double(r * 5 % columns);
                const Shape shape{rows.planned, columns}, column{rows.planned, 1};
                const Operand logits = m.operand(shape, numbers);
                const Operand labels = m.operand(column, classes, DType::kFloat32);
                const Operand dy = m.empty(shape), probabilities = m.empty(shape);
                const Operand losses = m.empty({rows.planned}, DType::kFloat64);
                const Operand alone = m.empty({rows.planned}, DType::kFloat64);
                const Operand correct = m.empty({rows.planned}, DType::kFloat64);
                m.ops().softmax_cross_entropy(state, smoothing, logits.tensor, labels.tensor,
                                              dy.tensor, losses.tensor, correct.tensor);
                m.ops().softmax_cross_entropy(state, smoothing, logits.tensor, labels.tensor, {},
                                              alone.tensor, correct.tensor);
                m.ops().softmax(state, logits.tensor, probabilities.tensor);
                const Operand target = m.operand(
                    shape, random_batch(rows.planned, rows.used, columns, 2), DType::kFloat32);
                const Operand de = m.empty(shape);
                const Operand errors = m.empty({rows.planned}, DType::kFloat64);
                m.ops().squared_error(state, logits.tensor, target.tensor, de.tensor,
                                      errors.tensor);
                return Results{dy.values(rows.used),
                               losses.values(rows.used),
                               alone.values(rows.used),
                               correct.values(rows.used),
                               errors.values(rows.used),
                               de.values(rows.used),
                               probabilities.values(rows.used),
                               {m.ops().batch_sum(state, losses.tensor)}};
              });
      if (enough_failed()) return;
    }
  }
}

TEST_F(Conformance, ALabelThatIsNoClassIsRefused) {
  for (Machine& m : machines_) {
    for (double label : {-1.0, 3.0, 1.5, 1e30, std::numeric_limits<double>::quiet_NaN()}) {
      const StepState* const state = m.publish(state_of(2));
      const Operand logits = m.operand({2, 3}, random_numbers(6, 1));
      const Operand target = m.operand({2, 1}, {0, label}, DType::kFloat32);
      const Operand losses = m.empty({2}, DType::kFloat64);
      try {
        m.ops().softmax_cross_entropy(state, 0, logits.tensor, target.tensor, {}, losses.tensor,
                                      {});
        m.ops().synchronize();
        ADD_FAILURE() << m.name() << " took class " << label;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kInvalid);
        EXPECT_NE(std::string(error.what()).find("row 1"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("0 to 2"), std::string::npos) << error.what();
      }
    }
  }
}

TEST_F(Conformance, WhatIsNotANumberStaysVisible) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (Machine& m : machines_) {
    SCOPED_TRACE(m.name());
    const StepState* const state = m.publish(state_of(1));
    std::vector<double> numbers = random_numbers(36, 1);
    numbers[7] = nan;
    const Operand x = m.operand({1, 36}, numbers), y = m.empty({1, 36}), dy = m.empty({1, 36});
    const Operand target = m.operand({1, 1}, {2}, DType::kFloat32);
    const Operand losses = m.empty({1}, DType::kFloat64), correct = m.empty({1}, DType::kFloat64);
    m.ops().relu(state, x.tensor, y.tensor);
    EXPECT_TRUE(std::isnan(y.values()[7]));
    EXPECT_FALSE(std::isnan(y.values()[8]));
    m.ops().tanh(state, x.tensor, y.tensor);
    EXPECT_TRUE(std::isnan(y.values()[7]));
    m.ops().softmax_cross_entropy(state, 0.1, x.tensor, target.tensor, dy.tensor, losses.tensor,
                                  correct.tensor);
    EXPECT_TRUE(std::isnan(losses.values()[0]));
    EXPECT_TRUE(std::isnan(dy.values()[3]));
    EXPECT_EQ(correct.values()[0], 0.0);
    const PoolSpec pool{PoolKind::kMax, 6, 6, 1, 3, 3, 3, 0};
    const Buffer workspace = m.ops().allocate(m.ops().pool_workspace(pool, 1), "places");
    const Operand image = m.operand({1, 6, 6, 1}, numbers), pooled = m.empty({1, 2, 2, 1});
    m.ops().pool_forward(state, pool, image.tensor, pooled.tensor, workspace.data());
    EXPECT_TRUE(std::isnan(pooled.values()[0]));
    EXPECT_FALSE(std::isnan(pooled.values()[1]));
    const Operand w = m.operand({2, 36}, random_numbers(72, 2)), out = m.empty({1, 2});
    m.ops().dense_forward(state, {36, 2, false}, x.tensor, w.tensor, {}, out.tensor);
    EXPECT_TRUE(std::isnan(out.values()[0]));
    m.ops().dense_forward(state, {36, 2, false, Activation::kRelu}, x.tensor, w.tensor, {},
                          out.tensor);
    EXPECT_TRUE(std::isnan(out.values()[1]));
    const Operand k = m.operand({2, 3, 3, 1}, random_numbers(18, 3)), map = m.empty({1, 4, 4, 2});
    m.ops().convolution_forward(state, {6, 6, 1, 2, 3, 3, 1, 0, false}, image.tensor, k.tensor, {},
                                map.tensor);
    EXPECT_TRUE(std::isnan(map.values()[0]));
  }
}

TEST_F(Conformance, LoadAndChecksumAgreeOnAllDevices) {
  std::vector<float> numbers(37);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i) * 0.25f - 3;
  const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
  for (Machine& m : machines_) {
    SCOPED_TRACE(m.name());
    const Operand x = m.empty({37});
    m.ops().load(numbers.data(), x.tensor);
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(x.values()[i], double(numbers[i]));

    const Ops& ops = m.ops();
    const auto held = m.numbers(numbers);
    const auto* there = reinterpret_cast<const std::byte*>(held.data());
    m.ops().synchronize();  // checksums do not wait for queued work
    const std::uint64_t whole = ops.checksum(there, 37 * 4, 5);
    EXPECT_EQ(whole, oracle_.ops().checksum(bytes, 37 * 4, 5));
    EXPECT_EQ(whole, ops.checksum(there, 40, 5) + ops.checksum(there + 40, 27 * 4, 15));
    EXPECT_EQ(ops.checksum(there, 0, 5), 0u);
    EXPECT_NE(whole, ops.checksum(there, 37 * 4, 6));
    EXPECT_EQ(ops.checksum(there, 11, 0), oracle_.ops().checksum(bytes, 11, 0));
    std::vector<float> changed = numbers;
    std::swap(changed[3], changed[4]);
    const auto other = m.numbers(changed);
    m.ops().synchronize();
    EXPECT_NE(whole, ops.checksum(reinterpret_cast<const std::byte*>(other.data()), 37 * 4, 5));
  }
}

TEST_F(Conformance, ChecksumsOfRangesAreAddedToWhatIsThere) {
  for (Machine& m : machines_) {
    SCOPED_TRACE(m.name());
    const std::size_t width = size_of(m.dtype());
    const Operand x = m.operand({5000}, random_numbers(5000, 1));
    const std::vector<Range> ranges{{0, 1}, {16, 4999}, {7, 7}, {4999, 5000}};
    const auto there = m.numbers(ranges);
    const auto sums = m.numbers(std::vector<std::uint64_t>{1, 2, 3, 4});
    for (int repeat = 0; repeat < 2; ++repeat)
      m.ops().queue_checksums(x.tensor.data, {there.data(), ranges.size()}, sums.data());
    m.ops().synchronize();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::uint64_t one =
          m.ops().checksum(x.tensor.data + ranges[i].begin * width, ranges[i].size() * width, 0);
      EXPECT_EQ(sums.values()[i], i + 1 + 2 * one) << i;
    }
  }
}

}  // namespace conformance_test
}  // namespace lockstep::engine
