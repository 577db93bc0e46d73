// SPDX-License-Identifier: MIT
#include "models/mlp.h"

#include "engine/nn/layers.h"

namespace lockstep::models {
namespace {

// Returns a network with two hidden layers of one width. Dense layers flatten the image.
engine::GraphSpec two_hidden_layers(std::string name, std::size_t width) {
  engine::GraphSpec graph(std::move(name), {28, 28, 1});
  graph.then("dense1", engine::dense(width));
  graph.then("relu1", engine::relu());
  graph.then("dense2", engine::dense(width));
  graph.then("relu2", engine::relu());
  graph.then("dense3", engine::dense(10));
  graph.set_loss(engine::softmax_cross_entropy());
  return graph;
}

}  // namespace

engine::GraphSpec mlp() {
  return two_hidden_layers("mlp", 512);
}
engine::GraphSpec mlp_wide() {
  return two_hidden_layers("mlp_wide", 4096);
}

}  // namespace lockstep::models
