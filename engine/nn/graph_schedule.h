// SPDX-License-Identifier: MIT
// When each layer of a graph runs in a step: which layers take turns slice by slice, which backward
// computes again, and whose gradients of weights are computed on a second queue. Immutable.
//
// The moments of a step with n layers: forward of layer i is moment i, the loss is moment n, then
// comes backward of layers n - 1 to 0, and before that of a block the layers that run again, each a
// moment. The layers of a chain take turns, so each of them begins with the first and ends with the
// last.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/nn/graph_plan.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

class GraphSchedule {
 public:
  static constexpr std::size_t kNone = std::size_t(-1);

  // `rows`: the most examples of a batch. The plan outlives this. Throws Error(kInvalid) for no
  // rows, and where a model without blocks is to `recompute`.
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

  // Returns the block whose last layer the node is, if blocks are computed again; else kNone.
  std::size_t block_that_ends(std::size_t node) const;
  // Returns whether backward computes the node again.
  bool again(std::size_t node) const { return again_[node]; }
  // Returns whether the second queue computes the node's gradients of weights, and those of how
  // many earlier nodes may then still be on their way.
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
  // Of each node.
  std::vector<std::size_t> chain_of_;  // or kNone
  std::vector<bool> again_, apart_;
  std::vector<std::size_t> again_moment_, backward_moment_, running_, ends_apart_;
};

}  // namespace lockstep::engine
