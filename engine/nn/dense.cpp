// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

// Computes y = x w' + b, with ReLU in the same pass if it was fused. Takes any input flat.
class Dense final : public Layer {
 public:
  Dense(std::size_t outputs, DenseOptions options, Activation activation)
      : outputs_(outputs), options_(options), activation_(activation) {}

  std::string describe() const override {
    return fmt::format("dense {}{}{}", outputs_, options_.bias ? ", bias" : "",
                       activation_ == Activation::kRelu ? ", relu" : "");
  }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    require(inputs[0].elements() > 0, "takes an input of at least one element, not {}",
            to_string(inputs[0]));
    return {outputs_};
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const std::size_t count = inputs[0].elements();
    std::vector<ParameterSpec> all{
        {"weight", {outputs_, count}, glorot_uniform(count, outputs_), Group::kWeight}};
    if (options_.bias) all.push_back({"bias", {outputs_}, constant(0), Group::kBias});
    return all;
  }
  LayerPtr with_relu() const override {
    if (activation_ != Activation::kNone) return nullptr;
    return std::make_shared<Dense>(outputs_, options_, Activation::kRelu);
  }
  KernelMemory kernel_memory(const Ops& ops, std::span<const Shape> inputs,
                             std::size_t rows) const override {
    return ops.dense_memory({inputs[0].elements(), outputs_, options_.bias, activation_}, rows);
  }
  double work(std::span<const Shape> inputs) const override {
    return double(inputs[0].elements() * outputs_);
  }
  bool gradients_apart() const override { return true; }
  bool backward_reads_output() const override { return activation_ == Activation::kRelu; }
  void forward(Context& context, const ForwardArguments& a) const override {
    const Tensor x = flat(a.x[0]);
    context.ops->dense_forward(context.state, spec(x), x, a.w[0], options_.bias ? a.w[1] : Tensor{},
                               a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    const Tensor x = flat(a.x[0]);
    context.ops->dense_backward(context.state, spec(x), x, a.y, a.dy, a.w[0], flat(a.dx[0]),
                                a.dw[0], options_.bias ? a.dw[1] : Tensor{}, a.accumulate);
  }

 private:
  static Tensor flat(Tensor x) {
    x.shape = {x.rows(), x.columns()};
    return x;
  }
  DenseSpec spec(const Tensor& x) const {
    return {x.columns(), outputs_, options_.bias, activation_};
  }
  std::size_t outputs_;
  DenseOptions options_;
  Activation activation_;
};

}  // namespace

LayerPtr dense(std::size_t outputs, DenseOptions options) {
  require(outputs > 0, "dense: has 0 outputs; at least 1 is needed");
  return std::make_shared<Dense>(outputs, options, Activation::kNone);
}

}  // namespace lockstep::engine
