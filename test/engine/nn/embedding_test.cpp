// SPDX-License-Identifier: MIT
// Tests embedding layers on every device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/nn/gradient_check.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "test/engine/nn/id_graphs.h"

namespace lockstep::engine {
namespace embedding_test {

using testing::HasSubstr;

TEST(Embedding, BackwardAgreesWithDifferences) {
  const auto ops = reference_ops(DType::kFloat64);
  for (bool sum : {false, true}) {
    for (std::size_t examples : {std::size_t(7), std::size_t(5), std::size_t(0)}) {
      GradientCheckOptions options{.rows = 7, .examples = examples};
      options.input = [](std::size_t row, std::size_t column) { return id_input(row, column); };
      const GradientCheck check = check_gradient(*ops, id_graph(sum), options);
      EXPECT_LT(check.worst, 1e-6) << check.place;
      EXPECT_GT(check.checked, 100u);
      EXPECT_EQ(check.kinks, 0u);
    }
  }
}

TEST(Embedding, EveryDeviceTrainsAsTheReference) {
  const auto exact = reference_ops(DType::kFloat64);
  for (const auto& device : host_devices()) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      if (!device->supports(dtype)) continue;
      const auto ops = device->ops(dtype, {.threads = 3});
      for (bool sum : {false, true}) {
        IdSolo expected(id_graph(sum), *exact, 9), found(id_graph(sum), *ops, 9);
        for (IdSolo* solo : {&expected, &found}) {
          solo->fill_ids(0, 7);
          solo->step();
          solo->step(true);  // accumulates
        }
        const std::vector<double> a = found.gradient(), b = expected.gradient();
        for (std::size_t i = 0; i < a.size(); ++i) {
          ASSERT_NEAR(a[i], b[i], dtype == DType::kFloat32 ? 1e-5 : 1e-12) << i;
        }
        EXPECT_NEAR(found.loss(), expected.loss(), 1e-5);
      }
    }
  }
}

// A row's gradient is summed in the order of the examples, whichever thread fills the table with
// zeros.
TEST(Embedding, GradientsHaveTheSameBitsForEveryNumberOfThreads) {
  const auto devices = host_devices();
  std::vector<std::byte> first;
  for (int threads : {1, 2, 3}) {
    const auto ops = find(devices, {"cpu", 0}).ops(DType::kFloat32, {.threads = threads});
    GraphSpec spec("sum", {3});
    spec.then("words", embedding(5, 4, {.limit = 1}));
    spec.set_loss(mean_squared_error());
    IdSolo solo(spec, *ops, 64);
    for (int again = 0; again < 2; ++again) {
      solo.fill_ids(0, 64);
      solo.step();
      const std::byte* data = solo.gradients.data();
      const std::vector<std::byte> bits(data, data + solo.graph.trainable() * sizeof(float));
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first) << threads << " threads";
    }
  }
}

TEST(Embedding, WhatIsNoIdStopsForwardWithTheNameOfTheLayer) {
  for (const auto& device : host_devices()) {
    const auto ops = device->ops(DType::kFloat32, {});
    IdSolo solo(id_graph(false), *ops, 4);
    solo.fill_ids(0, 4);
    solo.graph.input().as<float>()[2 * 5 + 3] = 3.5f;
    try {
      solo.step();
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr("layer rows: example 1002: field 1 (column 3 of its "
                                          "input) is 3.5, which is no id"));
    }
  }
}

// Computes y = x + p, so that the layer below has a gradient. Overwrites dy with ones, as backward
// may.
class Shift final : public Layer {
 public:
  std::string describe() const override { return "shift"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{"p", {inputs[0].elements()}, constant(0), Group::kBias}};
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    context.ops->copy(context.state, a.x[0], a.y);
  }
  void backward(Context&, const BackwardArguments& a) const override {
    for (std::size_t i = 0; i < a.dw[0].elements(); ++i) a.dw[0].as<double>()[i] = 0;
    for (std::size_t i = 0; i < a.dy.elements(); ++i) {
      a.dw[0].as<double>()[i % a.dy.columns()] += std::abs(a.dy.as<double>()[i]);
      a.dy.as<double>()[i] = 1;
    }
  }
};

TEST(Embedding, IdsHaveNoGradient) {
  const auto ops = reference_ops(DType::kFloat64);
  GraphSpec spec("shifted", {3});
  spec.then("shift", std::make_shared<Shift>());
  spec.then("words", embedding(5, 4, {.limit = 1}));
  spec.set_loss(mean_squared_error());
  IdSolo solo(spec, *ops, 6);
  solo.fill_ids(0, 6);
  solo.step();
  solo.step();
  for (const Parameter& parameter : solo.graph.layout()) {
    double sum = 0;
    for (std::size_t i = parameter.range.begin; i < parameter.range.end; ++i) {
      sum += std::abs(solo.gradient()[i]);
    }
    EXPECT_EQ(sum == 0, parameter.name == "shift.p") << parameter.name << " " << sum;
  }
}

TEST(Columns, ThatAreNotTakenHaveNoGradient) {
  const auto ops = reference_ops(DType::kFloat64);
  GraphSpec spec("shifted", {3});
  spec.then("shift", std::make_shared<Shift>());
  spec.then("middle", columns(1, 1));
  spec.set_loss(mean_squared_error());
  Solo solo(spec, *ops, 6);
  solo.step();
  solo.step();
  const std::vector<double> gradient = solo.gradient();
  EXPECT_EQ(gradient[0], 0);
  EXPECT_GT(gradient[1], 0);
  EXPECT_EQ(gradient[2], 0);
}

TEST(Embedding, StartValuesAreUniformWithinTheLimitOrZero) {
  const auto ops = reference_ops(DType::kFloat64);
  const IdSolo solo(id_graph(true), *ops, 1);
  std::size_t seen = 0;
  for (const Parameter& parameter : solo.graph.layout()) {
    double most = 0;
    for (std::size_t i = parameter.range.begin; i < parameter.range.end; ++i) {
      most = std::max(most, std::abs(reinterpret_cast<const double*>(solo.weights.data())[i]));
    }
    if (parameter.name == "rows.weight") {
      EXPECT_EQ(parameter.shape, (Shape{3 * 4, 2}));
      EXPECT_LE(most, 0.05);
      EXPECT_GT(most, 0.03);
      ++seen;
    } else if (parameter.name == "votes.weight") {
      EXPECT_EQ(most, 0);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 2u);
}

std::string error_of(std::size_t rows, std::size_t columns, EmbeddingOptions options) {
  try {
    GraphSpec spec("m", {6});
    spec.then("words", embedding(rows, columns, options));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(Embedding, TablesThatCannotBeAreRefused) {
  EXPECT_THAT(error_of(0, 2, {}), HasSubstr("0 rows for each field; 1 to 16777216 can be"));
  EXPECT_THAT(error_of((1 << 24) + 1, 2, {}), HasSubstr("16777217 rows for each field"));
  EXPECT_EQ(error_of(1 << 24, 2, {}), "no error");
  EXPECT_THAT(error_of(5, 0, {}), HasSubstr("rows of 0 columns"));
  EXPECT_THAT(error_of(5, 2, {.limit = -1}), HasSubstr("within +-"));
  EXPECT_THAT(error_of(5, 2, {.limit = std::nan("")}), HasSubstr("within +-"));
  EXPECT_THAT(error_of(5, 2, {.first = 6}), HasSubstr("from columns 6 on"));
  EXPECT_THAT(error_of(5, 2, {.first = 4, .fields = 3}),
              HasSubstr("embedding words: takes ids from columns 4 on, 3 of them, and its input "
                        "has 6"));
  GraphSpec wide("wide", {300});
  EXPECT_THAT([&] { wide.then("words", embedding(1 << 24, 1)); },
              testing::ThrowsMessage<Error>(HasSubstr("300 fields of 16777216 rows are more")));
}

TEST(Columns, AreTakenFromWhereTheyAre) {
  GraphSpec spec("m", {6});
  EXPECT_EQ(spec.shape(spec.add("a", columns(2, 4), spec.input())), (Shape{4}));
  EXPECT_THAT([&] { spec.add("b", columns(3, 4), spec.input()); },
              testing::ThrowsMessage<Error>(HasSubstr("takes columns 3 to 6 of an input of 6")));
  EXPECT_THROW(columns(3, 0), Error);
}

}  // namespace embedding_test
}  // namespace lockstep::engine
