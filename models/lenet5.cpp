// SPDX-License-Identifier: MIT
#include "models/lenet5.h"

#include "engine/nn/layers.h"

namespace lockstep::models {

engine::GraphSpec lenet5() {
  engine::GraphSpec graph("lenet5", {28, 28, 1});
  graph.then("conv1", engine::convolution(6, 5, {.padding = 2}));
  graph.then("tanh1", engine::tanh());
  graph.then("pool1", engine::average_pool(2));
  graph.then("conv2", engine::convolution(16, 5));
  graph.then("tanh2", engine::tanh());
  graph.then("pool2", engine::average_pool(2));
  graph.then("dense1", engine::dense(120));
  graph.then("tanh3", engine::tanh());
  graph.then("dense2", engine::dense(84));
  graph.then("tanh4", engine::tanh());
  graph.then("dense3", engine::dense(10));
  graph.set_loss(engine::softmax_cross_entropy());
  return graph;
}

}  // namespace lockstep::models
