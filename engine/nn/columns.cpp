// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

class Columns final : public Layer {
 public:
  Columns(std::size_t first, std::size_t count) : first_(first), count_(count) {}

  std::string describe() const override { return fmt::format("columns {}+{}", first_, count_); }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    const std::size_t all = inputs[0].elements();
    require(first_ <= all && count_ <= all - first_, "takes columns {} to {} of an input of {}",
            first_, first_ + count_ - 1, all);
    return {count_};
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    context.ops->copy_columns(context.state, a.x[0], first_, a.y, 0, count_);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    if (!a.dx[0]) return;
    context.ops->clear(context.state, a.dx[0]);
    context.ops->copy_columns(context.state, a.dy, 0, a.dx[0], first_, count_);
  }

 private:
  std::size_t first_, count_;
};

class Concatenate final : public Layer {
 public:
  std::string describe() const override { return "concatenate"; }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    std::size_t all = 0;
    for (const Shape& input : inputs) all += input.elements();
    return {all};
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    std::size_t at = 0;
    for (const Tensor& x : a.x) {
      context.ops->copy_columns(context.state, x, 0, a.y, at, x.columns());
      at += x.columns();
    }
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    std::size_t at = 0;
    for (std::size_t i = 0; i < a.x.size(); ++i) {
      const std::size_t count = a.x[i].columns();
      if (a.dx[i]) context.ops->copy_columns(context.state, a.dy, at, a.dx[i], 0, count);
      at += count;
    }
  }
};

}  // namespace

LayerPtr columns(std::size_t first, std::size_t count) {
  require(count > 0, "columns: 0 columns from {}; at least 1 is needed", first);
  return std::make_shared<Columns>(first, count);
}
LayerPtr concatenate() {
  return std::make_shared<Concatenate>();
}

}  // namespace lockstep::engine
