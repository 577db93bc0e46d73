// SPDX-License-Identifier: MIT
// The plan of a graph, derived from its spec alone, without memory: which layers run, which values
// share memory, where each parameter lies, and which gradients are wanted. A pure function.
//
// A value is named by its index (GraphSpec::Value). Views, and ReLUs and max pools that were fused
// into the layer before them, do not run; their value has the storage of another value.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/nn/graph.h"

namespace lockstep::engine {

struct PlannedNode {
  std::string name;
  std::string merged;                    // the merged layer (Layer::with_maker), or empty
  std::shared_ptr<const Layer> layer;    // with ReLU if it was fused
  std::vector<std::size_t> inputs;       // values
  std::vector<Shape> input_shapes;       // without rows
  std::size_t output = 0;                // the value
  std::vector<std::size_t> parameters;   // indices in GraphPlan::layout, in the layer's order
  Range range;                           // its trainable parameters, with their padding
  int point = 0;                         // its first reduction
  bool backward = false;                 // something trainable is here or below
  std::size_t block = 0;                 // as GraphSpec::Node::block
  std::size_t statistics = 0;            // first of its statistics
  std::size_t source = std::size_t(-1);  // index in GraphPlan::sources, if compact
};

// Covers nodes [first, last] of one block of the spec, in forward order. If blocks are computed
// again, forward keeps none of the values between them.
struct Block {
  std::size_t first = 0, last = 0;
};

// Covers nodes [first, last], each the only reader of the one before, that may process slices of
// rows together. Values between them are as large as a slice, and backward computes them again,
// because all nodes but the last are cheap.
struct Chain {
  std::size_t first = 0, last = 0;
};

struct GraphPlan {
  std::vector<PlannedNode> nodes;             // those that run, in the order of forward
  std::vector<std::size_t> storage;           // per value: the value with its memory
  std::vector<bool> wanted;                   // per value: its gradient is wanted
  std::vector<Parameter> layout;              // in arena order
  std::size_t trainable = 0, parameters = 0;  // elements, with padding
  std::vector<ReductionSpec> reductions;
  std::vector<Statistic> statistics;
  std::vector<Chain> chains;  // in order, none overlaps another
  std::vector<Block> blocks;  // likewise

  // Says what picks rows of compact parameters, each kind once: layers that read the same ids share
  // it.
  struct Source {
    RowSource rows;
    std::string layer;  // the first layer that has it
  };
  std::vector<Source> sources;
  static constexpr std::size_t kNoSource = std::size_t(-1);

  static constexpr std::size_t kAlignment = 16;  // elements: each parameter begins at a multiple
};

// Plans a graph. Unless `compact_rows` is 0, the arena holds only the rows of sparse parameters
// that a batch of so many rows touches. Throws Error(kInvalid) for a spec without a loss, a layer
// whose output nobody uses, or a sparse parameter that cannot be compact.
GraphPlan plan_graph(const GraphSpec& spec, std::size_t compact_rows = 0);

}  // namespace lockstep::engine
