// SPDX-License-Identifier: MIT
// Tests the decisions of a graph before it runs: layout, fusion, memory, and refused models.
#include "engine/nn/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/reference/reference_device.h"
#include "test/engine/nn/sample_graphs.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace graph_test {

using testing::ElementsAre;
using testing::HasSubstr;

struct Reference {
  std::unique_ptr<Ops> ops = reference_ops(DType::kFloat64);
};

TEST(Graph, ParametersLieInTheOrderInWhichBackwardFinishesAlignedWithFrozenOnesLast) {
  GraphSpec spec("two", {4});
  spec.then("first", dense(3));
  spec.then("relu", relu());
  spec.then("second", dense(2));
  spec.set_loss(softmax_cross_entropy());
  spec.freeze("second.weight");
  const Reference reference;
  const Graph graph(spec, *reference.ops, 2);
  const std::vector<Parameter>& layout = graph.layout();
  ASSERT_EQ(layout.size(), 4u);
  EXPECT_EQ(layout[0].name, "second.bias");
  EXPECT_EQ(layout[1].name, "first.weight");
  EXPECT_EQ(layout[2].name, "first.bias");
  EXPECT_EQ(layout[3].name, "second.weight");
  EXPECT_TRUE(layout[3].frozen);
  EXPECT_EQ(layout[0].range, (Range{0, 2}));
  EXPECT_EQ(layout[1].range, (Range{16, 28}));
  EXPECT_EQ(layout[2].range, (Range{32, 35}));
  EXPECT_EQ(layout[3].range, (Range{48, 54}));
  EXPECT_EQ(layout[1].shape, (Shape{3, 4}));
  EXPECT_EQ(layout[2].group, Group::kBias);
  EXPECT_EQ(graph.trainable(), 48u);
  EXPECT_EQ(graph.parameters(), 64u);
  EXPECT_EQ(graph.rows(), 2u);
  EXPECT_EQ(graph.dtype(), DType::kFloat64);
}

TEST(Graph, EveryLayoutIsAlignedAscendingAndWhole) {
  const Reference reference;
  for (const GraphSpec& spec : sample_graphs()) {
    const Graph graph(spec, *reference.ops, 2);
    std::size_t end = 0, elements = 0;
    bool frozen = false;
    for (const Parameter& parameter : graph.layout()) {
      EXPECT_EQ(parameter.range.begin % 16, 0u);
      EXPECT_EQ(parameter.range.begin, (end + 15) / 16 * 16);
      EXPECT_EQ(parameter.range.size(), parameter.shape.elements());
      EXPECT_EQ(parameter.frozen, spec.frozen(parameter.name));
      EXPECT_TRUE(parameter.frozen || !frozen) << "frozen ones are last";
      EXPECT_EQ(parameter.frozen, parameter.range.begin >= graph.trainable());
      frozen = parameter.frozen;
      end = parameter.range.end;
      elements += parameter.range.size();
    }
    EXPECT_EQ(graph.parameters(), (end + 15) / 16 * 16);
    std::size_t expected = 0;
    for (const GraphSpec::Node& node : spec.nodes()) {
      std::vector<Shape> shapes;
      for (GraphSpec::Value value : node.inputs) shapes.push_back(spec.shape(value));
      for (const auto& parameter : node.layer->parameters(shapes)) {
        expected += parameter.shape.elements();
      }
    }
    EXPECT_EQ(elements, expected);
  }
}

TEST(Graph, AReluGoesIntoTheLayerBeforeItWhereNobodyElseReadsThat) {
  const Reference reference;
  Solo solo(chain_graph(), *reference.ops, 2);
  Watcher watcher;
  solo.graph.observe(&watcher);
  solo.step();
  EXPECT_THAT(watcher.forward, ElementsAre("conv1", "conv2", "pool", "dense1", "dense2"));
  EXPECT_THAT(watcher.backward, ElementsAre("dense2", "dense1", "pool", "conv2", "conv1"));
  EXPECT_FALSE(watcher.negative);
  solo.graph.observe(nullptr);
  solo.step();
  EXPECT_EQ(watcher.forward.size(), 5u);

  Solo mixed(residual_graph(), *reference.ops, 2);
  mixed.graph.observe(&watcher);
  watcher.forward.clear();
  mixed.step();
  EXPECT_THAT(watcher.forward,
              ElementsAre("stem", "left", "left_tanh", "right", "sum", "all", "small", "mean",
                          "by_view", "by_mean", "both", "both_relu", "drop", "last"));

  // Two layers read `first`, so its value before the ReLU is needed.
  GraphSpec shared("shared", {6});
  const auto first = shared.then("first", dense(5));
  const auto active = shared.add("relu", relu(), first);
  shared.add("sum", add(), {first, active});
  shared.set_loss(softmax_cross_entropy());
  Solo whole(shared, *reference.ops, 2);
  whole.graph.observe(&watcher);
  watcher.forward.clear();
  whole.step();
  EXPECT_THAT(watcher.forward, ElementsAre("first", "relu", "sum"));
}

TEST(Graph, NothingRunsBackwardBelowTheLastTrainableLayer) {
  const Reference reference;
  const auto backward = [&](const std::vector<std::string>& frozen) {
    GraphSpec spec = chain_graph();
    for (const std::string& prefix : frozen) spec.freeze(prefix);
    Solo solo(spec, *reference.ops, 2);
    Watcher watcher;
    solo.graph.observe(&watcher);
    solo.step();
    return watcher.backward;
  };
  EXPECT_THAT(backward({"conv1"}), ElementsAre("dense2", "dense1", "pool", "conv2"));
  EXPECT_THAT(backward({"conv1", "conv2"}), ElementsAre("dense2", "dense1"));
  EXPECT_THAT(backward({"conv1.weight"}),
              ElementsAre("dense2", "dense1", "pool", "conv2", "conv1"));
  EXPECT_THAT(backward({"dense1", "dense2"}),
              ElementsAre("dense2", "dense1", "pool", "conv2", "conv1"));
  EXPECT_THAT(backward({"c", "d"}), ElementsAre());
}

TEST(Graph, ActivationsShareMemoryWhereTheirTimesDoNotMeet) {
  // With twenty layers of equal width, all outputs live until backward, but only two gradients at
  // once.
  GraphSpec deep("deep", {512});
  for (int i = 0; i < 20; ++i) deep.then("dense" + std::to_string(i), dense(512));
  deep.set_loss(mean_squared_error());
  const Reference reference;
  const std::size_t block = 8 * 512 * 8;  // rows, columns, bytes
  const Graph trained(deep, *reference.ops, 8);
  // The sum includes the input, twenty outputs, two gradients, the float32 target, and three small
  // vectors.
  EXPECT_LE(trained.activation_bytes(), (1 + 20 + 2) * block + block / 2 + 1024);
  EXPECT_GE(trained.activation_bytes(), (1 + 20 + 2) * block);
  // Frozen layers need their outputs only until the next layer has run.
  for (int i = 0; i < 19; ++i) deep.freeze("dense" + std::to_string(i) + ".");
  const Graph frozen(deep, *reference.ops, 8);
  EXPECT_LE(frozen.activation_bytes(), 4 * block + block / 2 + 1024);
}

TEST(Graph, TensorsOfTheLoopHaveTheirShapesAndAreAligned) {
  const Reference reference;
  Graph graph(chain_graph(), *reference.ops, 3);
  EXPECT_EQ(graph.input().shape, (Shape{3, 8, 8, 1}));
  EXPECT_EQ(graph.target().shape, (Shape{3, 1}));
  EXPECT_EQ(graph.target().dtype, DType::kFloat32);
  EXPECT_EQ(graph.output().shape, (Shape{3, 4}));
  EXPECT_EQ(graph.losses().shape, (Shape{3}));
  EXPECT_EQ(graph.correct().shape, (Shape{3}));
  EXPECT_EQ(graph.correct().dtype, DType::kFloat64);
  for (const Tensor& tensor : {graph.input(), graph.target(), graph.output(), graph.losses()}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 64, 0u);
  }
}

TEST(Graph, StartValuesAreTheSameForAllReplicasAndGapsAreZero) {
  const Reference reference;
  const GraphSpec spec = residual_graph();
  const Graph one(spec, *reference.ops, 1), many(spec, *reference.ops, 7);
  std::vector<double> a(one.parameters(), 99), b(one.parameters(), -99), c(one.parameters());
  const auto bytes = [](std::vector<double>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  one.initialise(5, bytes(a));
  many.initialise(5, bytes(b));
  many.initialise(6, bytes(c));
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  std::vector<bool> used(a.size());
  for (const Parameter& parameter : one.layout()) {
    std::vector<double> alone(parameter.range.size());
    initialise(parameter.initial, 5, parameter.name,
               {bytes(alone), parameter.shape, DType::kFloat64});
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(a[parameter.range.begin + i], alone[i]) << parameter.name;
      used[parameter.range.begin + i] = true;
    }
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(used[i] || a[i] == 0) << i;
  }
}

std::string error_of(const GraphSpec& spec, std::size_t rows = 2) {
  const Reference reference;
  try {
    const Graph graph(spec, *reference.ops, rows);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "no error";
}

// Has these parameters, and cannot run.
class Faulty : public Layer {
 public:
  explicit Faulty(std::vector<ParameterSpec> parameters) : parameters_(std::move(parameters)) {}
  std::string describe() const override { return "faulty"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(std::span<const Shape>) const override {
    return parameters_;
  }
  void forward(Context&, const ForwardArguments&) const override {
    if (parameters_.empty()) throw std::runtime_error("it fails");
    fail(Code::kInvalid, "it is broken");
  }
  void backward(Context&, const BackwardArguments&) const override {}

 private:
  std::vector<ParameterSpec> parameters_;
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Graph, ErrorsOfALayerHaveItsName) {
  const ParameterSpec parameter{.name = "w", .shape = {4}, .initial = constant(0)};
  GraphSpec spec("m", {4});
  EXPECT_EQ(error_of([&] {
              spec.then("twice", std::make_shared<Faulty>(std::vector{parameter, parameter}));
            }),
            "faulty twice: has two parameters named w");
  spec.then("once", std::make_shared<Faulty>(std::vector{parameter}));
  spec.set_loss(mean_squared_error());
  const Reference reference;
  Solo alone(spec, *reference.ops, 2);
  EXPECT_EQ(error_of([&] { alone.step(); }), "layer once: it is broken");
  GraphSpec other("m", {4});
  other.then("bare", std::make_shared<Faulty>(std::vector<ParameterSpec>()));
  other.set_loss(mean_squared_error());
  Solo bare(other, *reference.ops, 2);
  EXPECT_EQ(error_of([&] { bare.step(); }), "layer bare: it fails");
}

TEST(Graph, SpecsThatCannotRunAreRefused) {
  EXPECT_THAT(error_of(chain_graph(), 0), HasSubstr("at least one example"));
  GraphSpec without_loss("m", {4});
  without_loss.then("a", dense(3));
  EXPECT_THAT(error_of(without_loss), HasSubstr("model m has no loss"));
  GraphSpec empty("m", {4});
  empty.set_loss(softmax_cross_entropy());
  EXPECT_THAT(error_of(empty), HasSubstr("model m has no layers"));
  GraphSpec unused("m", {4});
  unused.add("a", dense(3), unused.input());
  unused.add("b", dense(3), unused.input());
  unused.set_loss(softmax_cross_entropy());
  EXPECT_EQ(error_of(unused),
            "model m: nobody uses the output of a; the last layer added is the model's output");
  // The loss was set for an output that is no longer the last one.
  GraphSpec late("m", {4});
  late.then("a", dense(3));
  late.set_loss(softmax_cross_entropy());
  late.then("b", dense(1));
  EXPECT_THAT(error_of(late), HasSubstr("at least two classes"));
}

}  // namespace graph_test
}  // namespace lockstep::engine
