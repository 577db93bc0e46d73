// SPDX-License-Identifier: MIT
// Checks a hand-written backward against central differences of its forward. Tests of a Layer or a
// Loss call it:
//
//   const auto ops = reference_ops(DType::kFloat64);
//   const GradientCheck check = check_gradient(*ops, std::make_shared<MyLayer>(7), {{5, 4, 3}});
//   EXPECT_LT(check.worst, 1e-6) << check.place;
//
// It checks all parameters and all inputs of the layer: the gradients that backward writes, and
// those that it adds with `accumulate`. Rows beyond the count hold NaN, so that reading them shows.
// Parameters and inputs are random; inputs of a layer keep a distance from zero and from each other
// (kinks of ReLU, ties of a max pool). If the two one-sided differences of an element still
// disagree, it is at a kink and is left out. The device's memory must be the host's. Costs two
// forward passes per element. Calls share nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/nn/graph_spec.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

struct GradientCheckOptions {
  std::size_t rows = 4;
  std::size_t examples = 3;   // the first rows, which count
  std::size_t samples = 300;  // most elements of one tensor, drawn at random
  double step = 1e-5;         // step of the differences
  double floor = 1e-4;        // smallest divisor of errors; else the gradient
  bool training = true;
  std::uint64_t seed = 1;
  // Returns the target at (row, column). Null: a class if the loss counts classes, else a number
  // drawn from (-1, 1).
  std::function<float(std::size_t row, std::size_t column)> target = {};
  // Returns the input of a whole model, if it may not be any number of (-1, 1), e.g. ids.
  std::function<float(std::size_t row, std::size_t column)> input = {};
};

struct GradientCheck {
  double worst = 0;         // the largest relative error
  std::string place;        // "conv.weight[17]: 0.25, differences say 0.5"
  std::size_t checked = 0;  // elements
  std::size_t kinks = 0;    // elements left out
};

// All throw Error(kInvalid) unless ops is of float64, and for shapes that the layer refuses. This
// one checks a layer in a graph of its own; `inputs` are without rows.
GradientCheck check_gradient(Ops& ops, std::shared_ptr<const Layer> layer,
                             const std::vector<Shape>& inputs,
                             const GradientCheckOptions& options = {});
// Checks a loss of an output of this shape.
GradientCheck check_gradient(Ops& ops, std::shared_ptr<const Loss> loss, const Shape& output,
                             const GradientCheckOptions& options = {});
// Checks all trainable parameters of a whole model at its start values, for one random batch.
GradientCheck check_gradient(Ops& ops, const GraphSpec& spec,
                             const GradientCheckOptions& options = {});

}  // namespace lockstep::engine
