// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

Shape same_as_input(std::span<const Shape> inputs) {
  require(inputs.size() == 1, "takes one input, not {}", inputs.size());
  return inputs[0];
}

class Relu final : public Layer {
 public:
  std::string describe() const override { return "relu"; }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override { return same_as_input(inputs); }
  bool is_relu() const override { return true; }
  bool backward_reads_input(std::size_t) const override { return false; }
  void forward(Context& context, const ForwardArguments& a) const override {
    context.ops->relu(context.state, a.x[0], a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    if (a.dx[0]) context.ops->relu_gradient(context.state, a.y, a.dy, a.dx[0]);
  }
};

class Tanh final : public Layer {
 public:
  std::string describe() const override { return "tanh"; }
  bool backward_reads_input(std::size_t) const override { return false; }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override { return same_as_input(inputs); }
  void forward(Context& context, const ForwardArguments& a) const override {
    context.ops->tanh(context.state, a.x[0], a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    if (a.dx[0]) context.ops->tanh_gradient(context.state, a.y, a.dy, a.dx[0]);
  }
};

// The gradient goes to both inputs unchanged. Each gets a copy, because each may be overwritten.
class Add final : public Layer {
 public:
  std::string describe() const override { return "add"; }
  bool is_add() const override { return true; }
  bool backward_reads_output() const override { return false; }
  bool backward_reads_input(std::size_t) const override { return false; }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 2, "takes two inputs, not {}", inputs.size());
    require(inputs[0] == inputs[1], "takes two inputs of one shape, not {} and {}",
            to_string(inputs[0]), to_string(inputs[1]));
    return inputs[0];
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    context.ops->add(context.state, a.x[0], a.x[1], a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    for (const Tensor& dx : a.dx) {
      if (dx) context.ops->copy(context.state, a.dy, dx);
    }
  }
};

}  // namespace

LayerPtr relu() {
  return std::make_shared<Relu>();
}
LayerPtr tanh() {
  return std::make_shared<Tanh>();
}
LayerPtr add() {
  return std::make_shared<Add>();
}

}  // namespace lockstep::engine
