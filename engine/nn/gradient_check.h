// SPDX-License-Identifier: MIT
// Holds a backward that was written by hand against central differences of its forward. Whoever
// writes a Layer or a Loss calls this in a test:
//
//   const auto ops = reference_ops(DType::kFloat64);
//   const GradientCheck check = check_gradient(*ops, std::make_shared<MyLayer>(7), {{5, 4, 3}});
//   EXPECT_LT(check.worst, 1e-6) << check.place;
//
// Checked are all parameters and all inputs of the layer: the gradients that backward writes, and
// those that it adds where `accumulate`; rows beyond the count hold numbers that are none, so that
// reading them shows. Parameters and inputs are drawn at random; inputs of a layer keep a distance
// from zero and from each other (kinks of ReLU, ties of a max pool). Where the two one-sided
// differences of an element disagree nevertheless, it stands on a kink and is left out.
//
// Memory of the device must be the host's. Cost: two forward passes for each element that is looked
// at. Calls share nothing.
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
  std::size_t examples = 3;   // of the rows, the first so many count
  std::size_t samples = 300;  // at most so many elements of one tensor, drawn at random
  double step = 1e-5;         // of the differences
  double floor = 1e-4;        // errors are divided by the gradient, or by this where it is smaller
  bool training = true;
  std::uint64_t seed = 1;
  // The number in (row, column) of the target. Null: a class where the loss counts classes, else
  // drawn from (-1, 1).
  std::function<float(std::size_t row, std::size_t column)> target = {};
  // The same of the input of a whole model, where that may not be any number of (-1, 1), as ids.
  std::function<float(std::size_t row, std::size_t column)> input = {};
};

struct GradientCheck {
  double worst = 0;         // the largest relative error
  std::string place;        // "conv.weight[17]: 0.25, differences say 0.5"
  std::size_t checked = 0;  // elements
  std::size_t kinks = 0;    // elements left out
};

// All throw Error(kInvalid) unless ops is of float64, or for shapes that the layer refuses.
// A layer in a graph of its own; `inputs` without rows.
GradientCheck check_gradient(Ops& ops, std::shared_ptr<const Layer> layer,
                             const std::vector<Shape>& inputs,
                             const GradientCheckOptions& options = {});
// A loss of an output of this shape.
GradientCheck check_gradient(Ops& ops, std::shared_ptr<const Loss> loss, const Shape& output,
                             const GradientCheckOptions& options = {});
// All trainable parameters of a whole model, at its start values, for one batch drawn at random.
GradientCheck check_gradient(Ops& ops, const GraphSpec& spec,
                             const GradientCheckOptions& options = {});

}  // namespace lockstep::engine
