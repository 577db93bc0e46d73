// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

std::string_view word(PoolKind kind) {
  return kind == PoolKind::kMax ? "max_pool" : "average_pool";
}

// Takes the maximum or the mean of each square window of a channel; padding never counts.
class Pool final : public Layer {
 public:
  Pool(PoolKind kind, std::size_t kernel, std::size_t stride, std::size_t padding)
      : kind_(kind), kernel_(kernel), stride_(stride), padding_(padding) {}

  std::string describe() const override {
    return fmt::format("{} {}, stride {}, padding {}", word(kind_), kernel_, stride_, padding_);
  }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    const Shape& input = inputs[0];
    require(input.rank() == 3 && input.elements() > 0,
            "takes an image (height x width x channels), not {}", to_string(input));
    require(kernel_ <= input[0] + 2 * padding_ && kernel_ <= input[1] + 2 * padding_,
            "kernel {} does not fit an input of {} {}", kernel_, to_string(input),
            padding_ ? fmt::format("with padding {}", padding_) : std::string("without padding"));
    const PoolSpec sizes = spec(input[0], input[1], input[2]);
    return {sizes.output_height(), sizes.output_width(), input[2]};
  }
  std::size_t max_pool_window() const override {
    return kind_ == PoolKind::kMax && stride_ == kernel_ && padding_ == 0 ? kernel_ : 0;
  }
  std::size_t workspace(Ops& ops, std::span<const Shape> inputs, std::size_t rows) const override {
    return ops.pool_workspace(spec(inputs[0][0], inputs[0][1], inputs[0][2]), rows);
  }
  bool backward_reads_output() const override { return false; }
  bool backward_reads_input(std::size_t) const override { return false; }
  void forward(Context& context, const ForwardArguments& a) const override {
    const Shape& x = a.x[0].shape;
    context.ops->pool_forward(context.state, spec(x[1], x[2], x[3]), a.x[0], a.y, a.workspace);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    if (!a.dx[0]) return;
    const Shape& x = a.x[0].shape;
    context.ops->pool_backward(context.state, spec(x[1], x[2], x[3]), a.dy, a.dx[0], a.workspace);
  }

 private:
  PoolSpec spec(std::size_t height, std::size_t width, std::size_t channels) const {
    return {.kind = kind_,
            .height = height,
            .width = width,
            .channels = channels,
            .kernel_height = kernel_,
            .kernel_width = kernel_,
            .stride = stride_,
            .padding = padding_};
  }
  PoolKind kind_;
  std::size_t kernel_, stride_, padding_;
};

// Takes the mean of each channel over the whole image, as one window.
class GlobalAveragePool final : public Layer {
 public:
  std::string describe() const override { return "global_average_pool"; }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    require(inputs[0].rank() == 3 && inputs[0].elements() > 0,
            "takes an image (height x width x channels), not {}", to_string(inputs[0]));
    return {inputs[0][2]};
  }
  std::size_t workspace(Ops& ops, std::span<const Shape> inputs, std::size_t rows) const override {
    return ops.pool_workspace(spec(inputs[0][0], inputs[0][1], inputs[0][2]), rows);
  }
  bool backward_reads_output() const override { return false; }
  bool backward_reads_input(std::size_t) const override { return false; }
  void forward(Context& context, const ForwardArguments& a) const override {
    const Shape& x = a.x[0].shape;
    context.ops->pool_forward(context.state, spec(x[1], x[2], x[3]), a.x[0], image(a.y),
                              a.workspace);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    if (!a.dx[0]) return;
    const Shape& x = a.x[0].shape;
    context.ops->pool_backward(context.state, spec(x[1], x[2], x[3]), image(a.dy), a.dx[0],
                               a.workspace);
  }

 private:
  static Tensor image(Tensor y) {
    y.shape = {y.shape[0], 1, 1, y.shape[1]};
    return y;
  }
  static PoolSpec spec(std::size_t height, std::size_t width, std::size_t channels) {
    return {.kind = PoolKind::kAverage,
            .height = height,
            .width = width,
            .channels = channels,
            .kernel_height = height,
            .kernel_width = width,
            .stride = 1,
            .padding = 0};
  }
};

LayerPtr pool(PoolKind kind, std::size_t kernel, PoolOptions options) {
  require(kernel > 0, "{}: kernel is 0; at least 1 is needed", word(kind));
  require(options.padding < kernel, "{}: padding {} must be below the kernel's size {}", word(kind),
          options.padding, kernel);
  return std::make_shared<Pool>(kind, kernel, options.stride ? options.stride : kernel,
                                options.padding);
}

}  // namespace

LayerPtr max_pool(std::size_t kernel, PoolOptions options) {
  return pool(PoolKind::kMax, kernel, options);
}

LayerPtr average_pool(std::size_t kernel, PoolOptions options) {
  return pool(PoolKind::kAverage, kernel, options);
}

LayerPtr global_average_pool() {
  return std::make_shared<GlobalAveragePool>();
}

}  // namespace lockstep::engine
