// SPDX-License-Identifier: MIT
// What a graph does, decided from its spec alone, without memory: which layers run, whose memory a
// value shares, where each parameter lies, which gradients are wanted. A pure function.
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
  std::string merged;                    // the layer merged into it (Layer::with_maker), or empty
  std::shared_ptr<const Layer> layer;    // with ReLU where one was fused
  std::vector<std::size_t> inputs;       // values
  std::vector<Shape> input_shapes;       // without rows
  std::size_t output = 0;                // the value
  std::vector<std::size_t> parameters;   // of GraphPlan::layout, in the layer's own order
  Range range;                           // its trainable parameters, with the padding behind them
  int point = 0;                         // its first reduction
  bool backward = false;                 // something trainable lies here or below
  std::size_t block = 0;                 // as GraphSpec::Node::block
  std::size_t statistics = 0;            // where its statistics begin
  std::size_t source = std::size_t(-1);  // of GraphPlan::sources, where parameters are compact
};

// Nodes [first, last] of one block of the spec, in the order of forward. Where blocks are computed
// again, forward keeps of what lies between them nothing.
struct Block {
  std::size_t first = 0, last = 0;
};

// Nodes [first, last], each the only reader of the one before, that may go through in slices of
// rows together: what lies between them is as large as a slice, and backward computes it again,
// since all nodes but the last are cheap.
struct Chain {
  std::size_t first = 0, last = 0;
};

struct GraphPlan {
  std::vector<PlannedNode> nodes;    // those that run, in the order of forward
  std::vector<std::size_t> storage;  // per value: the value whose memory it shares, or itself
  std::vector<bool> wanted;          // per value: its gradient is wanted
  std::vector<Parameter> layout;     // in arena order
  std::size_t trainable = 0, parameters = 0;  // elements, with padding
  std::vector<ReductionSpec> reductions;
  std::vector<Statistic> statistics;
  std::vector<Chain> chains;  // in order, none overlaps another
  std::vector<Block> blocks;  // likewise

  // What picks rows of compact parameters, each kind once: layers that read the same ids share it.
  struct Source {
    RowSource rows;
    std::string layer;  // the first that has it
  };
  std::vector<Source> sources;
  static constexpr std::size_t kNoSource = std::size_t(-1);

  static constexpr std::size_t kAlignment = 16;  // elements: each parameter begins at a multiple
};

// `compact_rows`: of sparse parameters only what a batch of so many rows touches lies in the arena;
// 0: all of them. Throws Error(kInvalid) where the spec has no loss, a layer whose output nobody
// uses, or a sparse parameter that cannot be compact.
GraphPlan plan_graph(const GraphSpec& spec, std::size_t compact_rows = 0);

}  // namespace lockstep::engine
