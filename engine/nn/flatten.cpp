// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

// Gives the same memory another shape; the graph never runs it.
class Flatten final : public Layer {
 public:
  std::string describe() const override { return "flatten"; }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    return {inputs[0].elements()};
  }
  bool is_view() const override { return true; }
  void forward(Context&, const ForwardArguments&) const override {}
  void backward(Context&, const BackwardArguments&) const override {}
};

}  // namespace

LayerPtr flatten() {
  return std::make_shared<Flatten>();
}

}  // namespace lockstep::engine
