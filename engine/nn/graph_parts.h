// SPDX-License-Identifier: MIT
// The inside of a Graph: its plan, where everything lies in its buffer, and what each layer is
// given. graph_parts.cpp plans and connects, graph.cpp runs; nobody else includes this. As the
// graph: the replica's computing thread.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/nn/graph.h"
#include "engine/nn/graph_plan.h"
#include "engine/nn/memory_plan.h"
#include "engine/nn/touched_rows.h"

namespace lockstep::engine {

struct Graph::Plan {
  // A gradient that is not the first one for its value: written to `from`, then added.
  struct Addition {
    Tensor from, to;
  };

  // One layer, with everything it is given in a step. The spans of `forward` and `backward` point
  // into the vectors beside them.
  struct Step {
    std::vector<Tensor> x, w, dx, dw;
    std::vector<Tensor> x_late;  // where backward reads them
    ForwardArguments forward;
    ForwardArguments again;  // of a block that is computed once more
    BackwardArguments backward;
    std::vector<Addition> additions;
  };

  Plan(const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options);

  // The moments of a step with n layers: forward of layer i is moment i, the loss is moment n, then
  // comes backward of layers n - 1 to 0, and before that of a block the layers that run again, each
  // a moment. The layers of a chain take turns, so each of them begins with the first and ends with
  // the last.
  std::size_t first_of(std::size_t i) const {
    return chain_of[i] == kNone ? i : graph.chains[chain_of[i]].first;
  }
  std::size_t last_of(std::size_t i) const {
    return chain_of[i] == kNone ? i : graph.chains[chain_of[i]].last;
  }
  std::size_t forward_begin(std::size_t i) const { return first_of(i); }
  std::size_t forward_end(std::size_t i) const { return last_of(i); }
  std::size_t loss_moment() const { return graph.nodes.size(); }
  std::size_t backward_begin(std::size_t i) const { return backward_moment[last_of(i)]; }
  std::size_t backward_end(std::size_t i) const { return backward_moment[first_of(i)]; }
  std::size_t last_moment() const { return backward_moment[0]; }
  std::size_t apart_end(std::size_t i) const { return apart[i] ? ends_apart[i] : backward_end(i); }
  // The block whose last layer is i, where blocks run again; else kNone.
  std::size_t block_that_ends(std::size_t i) const;
  // Whether the output of node i lies between two layers of a chain.
  bool between(std::size_t i) const { return chain_of[i] != kNone && i != last_of(i); }
  // Of a slice's rows those that count.
  Tensor in_use(const Tensor& y) const { return rows_of(y, 0, std::size_t(slice_state.examples)); }

  std::size_t bytes(const Shape& shape, DType dtype, bool slice = false) const {
    return (slice ? slice_rows : rows) * shape.elements() * size_of(dtype);
  }
  Shape shape(std::size_t value) const { return spec.shape({value}); }
  std::size_t book(std::size_t size, std::size_t first, std::size_t last);
  static GraphPlan placed(GraphPlan plan, const Ops& ops, const GraphOptions& options);
  void place_loss(const GraphOptions& options);
  void plan_slices();
  void plan_again(bool recompute);
  void plan_moments();
  void plan_apart();
  void plan_values();
  void plan_gradients();
  void plan_touched();
  void place();
  std::string name_of(std::size_t block) const;
  GraphMemory needed() const;  // without kernels and weights
  void connect();
  Tensor tensor(std::size_t block, const Shape& shape, DType dtype) const;
  void forward_node(Context& context, std::size_t i);
  void run_again(Context& context, std::size_t block);
  void backward_node(Context& context, std::size_t i, bool accumulate);
  template <class Body>
  void each_slice(Context& context, Body body);
  void forward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                     Observer::Pass pass);
  void backward_slice(Context& context, std::size_t i, std::size_t first, Slice slice,
                      bool accumulate);
  template <class Body>
  void observed(std::size_t i, Observer::Pass pass, const Tensor& y, Body body);

  const GraphSpec spec;
  Ops* ops;
  const std::size_t rows;
  const GraphPlan graph;
  std::shared_ptr<const Loss> loss;
  std::vector<std::string> fallbacks;
  const std::size_t slice_rows;
  std::vector<std::size_t> chain_of;  // of each node, or kNone
  bool recomputes = false;
  std::vector<bool> again;  // of each node: backward of its block runs it once more
  std::vector<bool> inner;  // of each value: forward alone keeps it, within its block
  std::vector<std::size_t> again_moment, backward_moment;  // of each node
  std::vector<bool> apart;              // of each node: its gradients of weights are made apart
  std::vector<std::size_t> running;     // how many nodes' before it may then still be made
  std::vector<std::size_t> ends_apart;  // the last moment at which they read
  StepState slice_state;
  Observer* observer = nullptr;

  // Blocks of the buffer: `values` and `gradients` by value (storage only), the others by node.
  static constexpr std::size_t kNone = std::size_t(-1);
  std::vector<Lifetime> blocks;
  std::vector<std::size_t> values, gradients, workspaces;
  std::vector<std::size_t> values_late;  // where backward reads a value; inner ones elsewhere
  std::vector<std::vector<std::size_t>> aside;  // per node and input: a block of its own, or kNone
  std::vector<bool> adds;                       // of each node: its gradient goes onto another's
  std::vector<std::size_t> touched_blocks;      // of each of graph.sources
  std::size_t target_block = 0, ids_block = 0, losses_block = 0, correct_block = 0;
  MemoryPlan memory;
  Buffer buffer;
  std::vector<Step> steps;
  std::vector<TouchedRows> touched;      // of each of graph.sources
  std::size_t touched_examples = kNone;  // of the batch that they were found for
  Tensor input, target, output, output_gradient, losses, correct;
  std::int64_t* ids = nullptr;
  Buffer learnt;  // statistics, which the host and kernels write
  double* statistics() const { return reinterpret_cast<double*>(learnt.data()); }
  std::byte* weights = nullptr;  // the strategy's arena, once bound
};

}  // namespace lockstep::engine
