// SPDX-License-Identifier: MIT
// The internals of a Graph: its plan, schedule and buffer, and the arguments of each layer.
// graph_parts.cpp connects them and graph.cpp runs them; no other file includes this. Used by the
// replica's computing thread.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/nn/graph.h"
#include "engine/nn/graph_buffer.h"
#include "engine/nn/graph_plan.h"
#include "engine/nn/graph_schedule.h"
#include "engine/nn/touched_rows.h"

namespace lockstep::engine {

struct Graph::Plan {
  // Describes a gradient that is not the first for its value: written to `from`, then added.
  struct Addition {
    Tensor from, to;
  };

  // Holds one layer with all its arguments in a step. The spans of `forward` and `backward` point
  // into the vectors beside them.
  struct Step {
    std::vector<Tensor> x, w, dx, dw;
    std::vector<Tensor> x_late;  // where backward reads x
    ForwardArguments forward;
    ForwardArguments again;  // for a block that is computed again
    BackwardArguments backward;
    std::vector<Addition> additions;
  };

  Plan(const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options);

  // Returns the rows in use of a slice.
  Tensor in_use(const Tensor& y) const { return rows_of(y, 0, std::size_t(slice_state.examples)); }

  void connect();
  Step step_of(std::size_t node);
  Tensor tensor(std::size_t block, const Shape& shape, DType dtype);
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
  void observed(std::size_t i, Observer::Pass pass, const Tensor& y, Body run);
  double* statistics() const { return reinterpret_cast<double*>(learnt.data()); }

  const GraphSpec spec;
  Ops* ops;
  const std::size_t rows;
  const GraphPlan graph;
  const std::shared_ptr<const Loss> loss;
  const std::vector<std::string> fallbacks;
  const GraphSchedule schedule;
  const GraphBuffer places;
  Buffer buffer;
  std::vector<Step> steps;
  std::vector<TouchedRows> touched;                     // per entry of graph.sources
  std::size_t touched_examples = GraphSchedule::kNone;  // examples for which they were found
  struct {
    Tensor input, target, output, output_gradient, losses, correct;
    std::int64_t* ids = nullptr;
  } io;                          // tensors of a step
  Buffer learnt;                 // statistics, which the host and kernels write
  std::byte* weights = nullptr;  // the strategy's arena, once bound
  StepState slice_state;
  Observer* observer = nullptr;
};

}  // namespace lockstep::engine
