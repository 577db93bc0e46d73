// SPDX-License-Identifier: MIT
#include "engine/nn/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/nn/graph_plan.h"
#include "engine/nn/layers.h"
#include "engine/nn/local_context.h"
#include "engine/reference/reference_device.h"

namespace lockstep::engine {
namespace {

using testing::HasSubstr;

// A graph on the reference device with arenas of its own.
struct Bench {
  Bench(const GraphSpec& spec, std::size_t rows, std::uint64_t seed = 1)
      : ops(reference_ops(DType::kFloat64)),
        graph(spec, *ops, rows),
        context(*ops, graph),
        weights(graph.parameters()),
        gradients(graph.trainable()) {
    graph.bind(reinterpret_cast<std::byte*>(weights.data()),
               reinterpret_cast<std::byte*>(gradients.data()));
    graph.initialise(seed, reinterpret_cast<std::byte*>(weights.data()));
    state.examples = std::int64_t(rows);
    state.inverse_examples = 1 / double(rows);
    state.ids = graph.ids();
    context.state = &state;
    double* x = graph.input().as<double>();
    for (std::size_t i = 0; i < graph.input().elements(); ++i) x[i] = std::sin(double(i) * 0.7 + 1);
  }
  void step(bool accumulate = false, const Graph::Hook& before = {},
            const Graph::Hook& ready = {}) {
    graph.forward(context, before);
    graph.evaluate_loss(context, true);
    graph.backward(context, accumulate, ready);
  }
  std::unique_ptr<Ops> ops;
  Graph graph;
  LocalContext context;
  StepState state;
  std::vector<double> weights, gradients;
};

GraphSpec two_dense() {
  GraphSpec spec("two", {4});
  spec.then("first", dense(3));
  spec.then("relu", relu());
  spec.then("second", dense(2));
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

TEST(Graph, ParametersLieInTheOrderInWhichBackwardFinishesAlignedWithFrozenOnesLast) {
  GraphSpec spec = two_dense();
  spec.freeze("second.weight");
  Bench bench(spec, 2);
  const std::vector<Parameter>& layout = bench.graph.layout();
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
  EXPECT_EQ(bench.graph.trainable(), 48u);
  EXPECT_EQ(bench.graph.parameters(), 64u);
}

}  // namespace
}  // namespace lockstep::engine
