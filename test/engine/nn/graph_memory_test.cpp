// SPDX-License-Identifier: MIT
// The kernels that these tests use allocate nothing themselves.
#include <gtest/gtest.h>

#include "engine/reference/reference_device.h"
#include "test/engine/nn/sample_graphs.h"
#include "test/engine/nn/solo.h"
#include "test/support/counted_allocations.h"

namespace lockstep::engine {
namespace graph_memory_test {

using test::count_allocations;
using test::counted_allocations;

TEST(GraphMemory, AStepAllocatesNothing) {
  GraphSpec spec("m", {2, 3, 2});
  const auto flat = spec.then("flat", flatten());
  const auto first =
      spec.then("a layer whose name is too long to lie inside of its string", dense(8));
  const auto bent = spec.add("tanh", tanh(), first);
  const auto second = spec.add("second", dense(8), flat);
  const auto sum = spec.add("sum", add(), {bent, second});
  spec.add("all", add(), {sum, first});
  spec.then("drop", dropout(0.5));
  spec.then("relu", relu());
  spec.then("last", dense(3));
  spec.set_loss(softmax_cross_entropy());
  const auto ops = reference_ops(DType::kFloat64);
  count_allocations();
  Solo solo(spec, *ops, 4);
  EXPECT_GT(counted_allocations(), 0);
  std::size_t announced = 0;
  const Graph::Hook hook = [&](Range range) { announced += range.size(); };
  count_allocations();
  for (int step = 0; step < 3; ++step) solo.step(step > 0, hook, hook);
  EXPECT_EQ(counted_allocations(), 0);
  EXPECT_EQ(announced, 6 * solo.graph.trainable());
}

TEST(GraphMemory, WhatIsPlannedWithoutTakingItIsWhatAGraphTakes) {
  GraphSpec spec("m", {12, 12, 3});
  spec.then("conv", convolution(7, 3));
  spec.then("pool", average_pool(2));
  spec.then("last", dense(300));
  spec.set_loss(mean_squared_error());
  const auto ops = reference_ops(DType::kFloat64);
  for (const std::size_t rows : {1, 5, 100}) {
    const GraphMemory memory = Graph::memory(spec, *ops, rows);
    EXPECT_EQ(memory.bytes, Graph(spec, *ops, rows).activation_bytes());
    // With few rows, the weights of the last layer are the largest tensor.
    const bool few = rows < 100;
    EXPECT_EQ(memory.largest, few ? "last.weight, 300x175" : "the output of conv, 100x10x10x7");
    EXPECT_EQ(memory.largest_bytes, (few ? 300 * 175 : 100 * 700) * sizeof(double)) << rows;
  }
}

}  // namespace graph_memory_test
}  // namespace lockstep::engine
