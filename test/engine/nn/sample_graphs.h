// SPDX-License-Identifier: MIT
// Small graphs with every kind of layer, for the tests of graphs.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/graph_spec.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {

// Returns a graph with convolutions, pools, a residual connection, a view, and dropout.
inline GraphSpec residual_graph() {
  GraphSpec spec("residual", {6, 6, 2});
  spec.then("stem", convolution(4, 3, {.padding = 1}));
  const auto trunk = spec.then("stem_relu", relu());
  spec.then("left", convolution(4, 3, {.padding = 1, .bias = false}));
  const auto left = spec.then("left_tanh", tanh());
  const auto right = spec.add("right", convolution(4, 1), trunk);
  const auto sum = spec.add("sum", add(), {left, right});
  const auto all = spec.add("all", add(), {sum, trunk});
  const auto small = spec.add("small", max_pool(2), all);
  const auto flat = spec.add("flat", flatten(), small);
  const auto mean = spec.add("mean", global_average_pool(), small);
  const auto by_view = spec.add("by_view", dense(5), flat);
  const auto by_mean = spec.add("by_mean", dense(5), mean);
  spec.add("both", add(), {by_view, by_mean});
  spec.then("both_relu", relu());
  spec.then("drop", dropout(0.3));
  spec.then("last", dense(3));
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

inline GraphSpec chain_graph() {
  GraphSpec spec("chain", {8, 8, 1});
  spec.then("conv1", convolution(3, 3));
  spec.then("relu1", relu());
  spec.then("conv2", convolution(4, 3, {.stride = 2, .padding = 1}));
  spec.then("relu2", relu());
  spec.then("pool", average_pool(2));
  spec.then("dense1", dense(7));
  spec.then("relu3", relu());
  spec.then("dense2", dense(4));
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

inline std::vector<GraphSpec> sample_graphs() {
  std::vector<GraphSpec> all{chain_graph(), residual_graph()};
  for (const char* prefix : {"conv1", "conv2.weight", "dense2", "dense1.bias"}) {
    GraphSpec spec = chain_graph();
    spec.freeze(prefix);
    all.push_back(std::move(spec));
  }
  GraphSpec spec = residual_graph();
  spec.freeze("stem");
  spec.freeze("left");
  all.push_back(std::move(spec));
  return all;
}

}  // namespace lockstep::engine
