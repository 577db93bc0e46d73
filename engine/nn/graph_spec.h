// SPDX-License-Identifier: MIT
// The description of a model: a directed graph of layers and a loss, without devices, memory or
// batches. A value that can be copied; every replica builds its own Graph from it. Layers are added
// in an order in which they can run.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/nn/layer.h"
#include "engine/nn/loss.h"

namespace lockstep::engine {

class GraphSpec {
 public:
  // Is an output of a layer, or the graph's input.
  struct Value {
    // Index 0 is the input, and index i + 1 the output of node i.
    std::size_t index = 0;
  };
  struct Node {
    std::string name;                    // unique; parameters are "<name>.weight"
    std::shared_ptr<const Layer> layer;  // shared by the graphs of all replicas; stateless
    std::vector<Value> inputs;
    std::size_t block = 0;  // its block, counted from 1; 0: none
  };

  GraphSpec(std::string name, Shape input) : name_(std::move(name)), input_(input) {}
  Value input() const { return {}; }
  // Throws Error(kInvalid) for a name used twice, an unknown value, or shapes that do not fit.
  Value add(std::string name, std::shared_ptr<const Layer> layer, std::vector<Value> inputs);
  Value add(std::string name, std::shared_ptr<const Layer> layer, Value input);
  // Appends to the last value that was added (or the input), for plain chains.
  Value then(std::string name, std::shared_ptr<const Layer> layer);
  // Begins a block: the layers that are added until the next begin_block or end_block.
  // GraphOptions::recompute computes a block again as a whole. The blocks of a residual network are
  // blocks here, too.
  void begin_block() { block_ = ++blocks_; }
  void end_block() { block_ = 0; }
  void set_loss(std::shared_ptr<const Loss> loss);  // for the last value
  // Keeps the values of parameters whose full name begins with `prefix`. Throws if there are none.
  void freeze(const std::string& prefix);

  const std::string& name() const { return name_; }
  const Shape& input_shape() const { return input_; }
  const Shape& output_shape() const;
  Shape shape(Value value) const;  // without rows
  const std::vector<Node>& nodes() const { return nodes_; }
  std::size_t blocks() const { return blocks_; }
  const Loss& loss() const { return *shared_loss(); }
  std::shared_ptr<const Loss> shared_loss() const;  // throws Error(kInvalid) if none was set
  bool frozen(const std::string& parameter) const;
  std::size_t target_columns() const;  // for the loss and this output
  // Returns the model as text, one line per layer: for people, and hashed to compare ranks.
  std::string describe() const;

 private:
  std::string name_;
  Shape input_;
  std::vector<Node> nodes_;
  std::size_t block_ = 0, blocks_ = 0;  // the current one; so far
  std::vector<Shape> shapes_;
  std::shared_ptr<const Loss> loss_;
  std::vector<std::string> frozen_;
};

}  // namespace lockstep::engine
