// SPDX-License-Identifier: MIT
#include "models/mnist_cnn.h"

#include "engine/nn/layers.h"

namespace lockstep::models {

engine::GraphSpec mnist_cnn() {
  engine::GraphSpec graph("mnist_cnn", {28, 28, 1});
  graph.then("conv1", engine::convolution(32, 3));
  graph.then("relu1", engine::relu());
  graph.then("conv2", engine::convolution(64, 3));
  graph.then("relu2", engine::relu());
  graph.then("pool", engine::max_pool(2));
  graph.then("dense1", engine::dense(128));
  graph.then("relu3", engine::relu());
  graph.then("dense2", engine::dense(10));
  graph.set_loss(engine::softmax_cross_entropy());
  return graph;
}

}  // namespace lockstep::models
