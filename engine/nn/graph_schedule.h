// SPDX-License-Identifier: MIT
// The schedule of a graph's layers in a step: which layers alternate slice by slice, which layers
// backward computes again, and whose weight gradients are computed on a second queue. Immutable.
//
// The moments of a step with n layers: forward of layer i is moment i, and the loss is moment n.
// Then comes backward of layers n - 1 to 0; before that of a block come the layers that run again,
// each a moment. The layers of a chain alternate, so each of them begins with the first and ends
// with the last.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/nn/graph_plan.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

class GraphSchedule {
 public:
  static constexpr std::size_t kNone = std::size_t(-1);

  // `rows` is the most examples of a batch. The plan must outlive this. Throws Error(kInvalid) for
  // no rows, and for `recompute` of a model without blocks.
  GraphSchedule(const GraphSpec& spec, const GraphPlan& plan, const Ops& ops, std::size_t rows,
                bool recompute);
  GraphSchedule(const GraphSchedule&) = delete;
  GraphSchedule& operator=(const GraphSchedule&) = delete;

  std::size_t slice_rows() const { return slice_rows_; }
  bool chained(std::size_t node) const { return chain_of_[node] != kNone; }
  // Returns the first or last node of the node's chain, or the node itself.
  std::size_t first_of(std::size_t node) const {
    return chained(node) ? plan_.chains[chain_of_[node]].first : node;
  }
  std::size_t last_of(std::size_t node) const {
    return chained(node) ? plan_.chains[chain_of_[node]].last : node;
  }
  // Returns whether the node's output lies between two layers of a chain.
  bool between(std::size_t node) const { return chained(node) && node != last_of(node); }

  // Returns the block whose last layer is the node, if blocks are computed again; else kNone.
  std::size_t block_that_ends(std::size_t node) const;
  // Returns whether backward computes the node again.
  bool again(std::size_t node) const { return again_[node]; }
  // `apart` returns whether the second queue computes the node's weight gradients; `running`
  // returns how many earlier nodes may then still be at theirs.
  bool apart(std::size_t node) const { return apart_[node]; }
  std::size_t running(std::size_t node) const { return running_[node]; }

  std::size_t loss_moment() const { return plan_.nodes.size(); }
  std::size_t last_moment() const { return backward_moment_[0]; }
  std::size_t again_moment(std::size_t node) const { return again_moment_[node]; }
  std::size_t backward_begin(std::size_t node) const { return backward_moment_[last_of(node)]; }
  std::size_t backward_end(std::size_t node) const { return backward_moment_[first_of(node)]; }
  // Returns the last moment at which backward of the node reads, also on the second queue.
  std::size_t apart_end(std::size_t node) const {
    return apart_[node] ? ends_apart_[node] : backward_end(node);
  }

 private:
  void plan_again(const GraphSpec& spec);
  void plan_slices(std::size_t rows);
  void plan_moments();
  void plan_apart(const GraphSpec& spec, const Ops& ops, std::size_t rows);

  const GraphPlan& plan_;
  const bool recomputes_;
  const std::size_t slice_rows_;
  // These have one entry per node.
  std::vector<std::size_t> chain_of_;  // or kNone
  std::vector<bool> again_, apart_;
  std::vector<std::size_t> again_moment_, backward_moment_, running_, ends_apart_;
};

}  // namespace lockstep::engine
