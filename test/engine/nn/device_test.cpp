// SPDX-License-Identifier: MIT
// Tests that every device of this machine trains a whole graph like the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "engine/cpu/cpu_device.h"
#include "engine/nn/graph_plan.h"
#include "engine/nn/layers.h"
#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "test/engine/nn/sample_graphs.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace device_test {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

// Expects the reference's results after two steps, the second of which accumulates. `examples` of
// the `rows` rows are in use.
void expect_two_steps_of_the_reference(const GraphSpec& spec, Ops& ops, std::size_t examples,
                                       std::size_t rows, double tolerance = 1e-5) {
  const auto exact = reference_ops(DType::kFloat64);
  const std::size_t outputs = spec.output_shape().elements();
  Solo expected(spec, *exact, rows), found(spec, ops, rows);
  for (Solo* solo : {&expected, &found}) {
    solo->fill(0, examples, rows, outputs);
    solo->step();
    solo->step(true);
  }
  EXPECT_LT(distance(found.gradient(), expected.gradient()), tolerance);
  EXPECT_NEAR(found.loss(), expected.loss(), tolerance);
  std::vector<double> is = found.output(), wanted = expected.output();
  is.resize(examples * outputs);
  wanted.resize(is.size());
  EXPECT_LT(distance(is, wanted), tolerance);
}

TEST(Devices, GiveTheOutputsLossesAndGradientsOfTheReference) {
  std::vector<std::string> compared;
  for (const auto& device : host_devices()) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      if (!device->supports(dtype)) continue;
      const auto ops = device->ops(dtype, {});
      compared.push_back(to_string(device->id()) + " " + std::string(name(dtype)));
      for (const GraphSpec& spec : sample_graphs()) {
        for (std::size_t examples : {std::size_t(5), std::size_t(3), std::size_t(0)}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", to_string(device->id()), name(dtype), spec.name(),
                                   examples));
          expect_two_steps_of_the_reference(spec, *ops, examples, 5,
                                            dtype == DType::kFloat32 ? 1e-5 : 1e-12);
        }
      }
    }
  }
  EXPECT_THAT(compared,
              IsSupersetOf({"cpu:0 float32", "reference:0 float32", "reference:0 float64"}));
}

// The rows in use end within a slice, fill slices, or are none; the accumulated step runs the chain
// twice.
TEST(Devices, AChainThatGoesThroughInSlicesGivesWhatTheReferenceGives) {
  GraphSpec spec("stem", {14, 12, 1});
  spec.then("conv1", convolution(16, 3));
  spec.then("relu1", relu());
  spec.then("conv2", convolution(32, 3, {.padding = 1}));
  spec.then("relu2", relu());
  spec.then("pool", max_pool(2));
  spec.then("flatten", flatten());
  spec.then("dense", dense(5));
  spec.set_loss(softmax_cross_entropy());
  ASSERT_EQ(plan_graph(spec).chains.size(), 1u);
  EXPECT_EQ(plan_graph(spec).nodes.size(), 3u);  // two convolutions, dense
  const auto devices = host_devices();
  for (const OpsOptions& options :
       {OpsOptions{}, OpsOptions{.kernels = Kernels::kDirect}, OpsOptions{.threads = 3}}) {
    const auto ops = find(devices, {"cpu", 0}).ops(DType::kFloat32, options);
    ASSERT_GT(ops->slice_rows(), 0u);
    const std::size_t rows = 2 * ops->slice_rows() + 3;
    for (std::size_t examples : {rows, rows - 3, ops->slice_rows() - 1, std::size_t(0)}) {
      SCOPED_TRACE(examples);
      expect_two_steps_of_the_reference(spec, *ops, examples, rows);
    }
  }
}

// Another layer reads the input of the chain of three, and parts of the chain are frozen.
TEST(Devices, AChainAmongOtherLayersGivesWhatTheReferenceGives) {
  const auto devices = host_devices();
  int variant = 0;
  for (const char* frozen : {"", "cheap", "cheap1", "cheap2", "before", "dear", "dear.weight"}) {
    const auto ops =
        find(devices, {"cpu", 0}).ops(DType::kFloat32, {.threads = variant++ % 2 == 0 ? 1 : 3});
    GraphSpec spec("skip", {12, 12, 2});
    const auto before = spec.then("before", convolution(16, 3, {.padding = 1}));
    spec.then("cheap1", convolution(16, 1));
    spec.then("relu1", relu());
    spec.then("cheap2", convolution(16, 1));
    spec.then("dear", convolution(32, 3, {.padding = 1}));
    spec.then("relu2", relu());
    const auto pooled = spec.then("pool", max_pool(2));
    const auto left = spec.add("left", dense(6), pooled);
    const auto right = spec.add("right", dense(6), before);
    spec.add("sum", add(), {left, right});
    spec.set_loss(softmax_cross_entropy());
    if (*frozen != 0) spec.freeze(frozen);
    const std::vector<Chain> chains = plan_graph(spec).chains;
    ASSERT_EQ(chains.size(), 1u);
    EXPECT_EQ(chains[0].last - chains[0].first, 2u);
    const std::size_t rows = 2 * ops->slice_rows() + 3;
    SCOPED_TRACE(fmt::format("frozen: {}", frozen));
    expect_two_steps_of_the_reference(spec, *ops, rows, rows);
  }
}

// Backward computes the frozen layers of a chain again. The memory that they read and write must
// not have been reused.
TEST(Devices, AChainWhoseFrontIsFrozenGivesWhatTheReferenceGives) {
  const auto devices = host_devices();
  const auto ops = find(devices, {"cpu", 0}).ops(DType::kFloat32, {});
  for (bool below : {false, true}) {
    GraphSpec spec("transfer", {24, 24, 1});
    if (below) {  // frozen and expensive; the chain reads it
      spec.then("below", convolution(8, 5, {.padding = 2}));
      spec.then("relu0", relu());
      spec.freeze("below");
    }
    spec.then("front", below ? convolution(2, 1) : convolution(16, 3));
    spec.then("relu1", relu());
    spec.then("pool1", max_pool(2));
    spec.then("dear", convolution(64, below ? 5 : 3));
    spec.then("relu2", relu());
    spec.then("pool2", max_pool(2));
    spec.then("hidden", dense(40));
    spec.then("relu3", relu());
    spec.then("last", dense(5));
    spec.set_loss(softmax_cross_entropy());
    spec.freeze("front");
    const std::size_t rows = 2 * ops->slice_rows() + 3;
    ASSERT_FALSE(plan_graph(spec).chains.empty());
    SCOPED_TRACE(fmt::format("below: {}", below));
    expect_two_steps_of_the_reference(spec, *ops, rows, rows);
  }
}

// Returns a graph with a chain of two, followed by layers of other kinds.
GraphSpec odd_chain() {
  GraphSpec spec("odd", {12, 12, 16});
  spec.then("cheap", convolution(16, 3, {.padding = 1}));
  spec.then("relu1", relu());
  spec.then("dear", convolution(256, 3));
  spec.then("relu2", relu());
  spec.then("pool", max_pool(2));
  spec.then("last", dense(5));
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

// Counts the rows of each layer that the observer sees in forward.
struct RowCounter final : Observer {
  std::map<std::string, std::size_t> rows;
  void layer(const std::string& name, Pass pass, Clock::time_point, Clock::time_point,
             Tensor y) override {
    if (pass == Pass::kForward) rows[name] += y.rows();
  }
};

// Unused rows of a slice are uninitialized, and those past the end of a batch belong to other
// tensors.
TEST(Devices, OfSlicesAnObserverIsShownTheRowsInUse) {
  const auto devices = host_devices();
  const GraphSpec spec = odd_chain();
  const auto ops = find(devices, {"cpu", 0}).ops(DType::kFloat32, {});
  const std::size_t rows = 2 * ops->slice_rows() + 1;
  Solo solo(spec, *ops, rows);
  for (std::size_t examples : {rows, rows - 2}) {
    solo.fill(0, examples, rows, 5);
    RowCounter counter;
    solo.graph.observe(&counter);
    solo.step();
    solo.graph.observe(nullptr);
    EXPECT_EQ(counter.rows.at("cheap"), examples);
    EXPECT_EQ(counter.rows.at("dear"), examples);
  }
}

// The last slice has a single row. It runs the same kernels as the others; otherwise ranks would
// differ.
TEST(Devices, AShortSliceGoesByTheKernelsOfWholeOnes) {
  const auto devices = host_devices();
  const GraphSpec spec = odd_chain();
  ASSERT_EQ(plan_graph(spec).chains.size(), 1u);
  const auto ops = find(devices, {"cpu", 0}).ops(DType::kFloat32, {});
  const std::size_t rows = 4 * ops->slice_rows() + 1;
  Solo solo(spec, *ops, rows);
  for (std::size_t examples : {rows - 1, rows}) {
    solo.fill(0, examples, rows, 5);
    solo.step();
    for (const std::string& made : implementations(*ops))
      EXPECT_THAT(made, Not(HasSubstr("convolution")));
  }
}

}  // namespace device_test
}  // namespace lockstep::engine
