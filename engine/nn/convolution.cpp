// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

// Computes the cross-correlation of a channels-last image with square kernels, with ReLU and a max
// pool if they were fused.
class Convolution final : public Layer {
 public:
  Convolution(std::size_t filters, std::size_t kernel, ConvolutionOptions options,
              Activation activation, std::size_t window = 0)
      : filters_(filters),
        kernel_(kernel),
        options_(options),
        activation_(activation),
        window_(window) {}

  std::string describe() const override {
    return fmt::format("convolution {}, kernel {}, stride {}, padding {}{}{}", filters_, kernel_,
                       options_.stride, options_.padding, options_.bias ? ", bias" : "",
                       activation_ == Activation::kRelu ? ", relu" : "");
  }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    const Shape& input = inputs[0];
    require(input.rank() == 3 && input.elements() > 0,
            "takes an image (height x width x channels), not {}", to_string(input));
    const std::size_t pad = 2 * options_.padding;
    require(kernel_ <= input[0] + pad && kernel_ <= input[1] + pad,
            "kernel {} does not fit an input of {} {}", kernel_, to_string(input),
            options_.padding ? fmt::format("with padding {}", options_.padding)
                             : std::string("without padding"));
    const ConvolutionSpec sizes = spec(input[0], input[1], input[2]);
    return {sizes.output_height(), sizes.output_width(), filters_};
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const std::size_t channels = inputs[0][2];
    std::vector<ParameterSpec> all{{"weight",
                                    {filters_, kernel_, kernel_, channels},
                                    he_normal(kernel_ * kernel_ * channels),
                                    Group::kWeight}};
    if (options_.bias) all.push_back({"bias", {filters_}, constant(0), Group::kBias});
    return all;
  }
  LayerPtr with_relu() const override {
    if (activation_ != Activation::kNone || window_ > 0) return nullptr;
    return std::make_shared<Convolution>(filters_, kernel_, options_, Activation::kRelu);
  }
  LayerPtr with_max_pool(std::size_t window) const override {
    if (window_ > 0) return nullptr;
    return std::make_shared<Convolution>(filters_, kernel_, options_, activation_, window);
  }
  std::size_t workspace(Ops& ops, std::span<const Shape> inputs, std::size_t rows) const override {
    if (window_ == 0) return 0;
    return ops.pooled_convolution_workspace(pooled(inputs[0][0], inputs[0][1], inputs[0][2]), rows);
  }
  KernelMemory kernel_memory(const Ops& ops, std::span<const Shape> inputs,
                             std::size_t rows) const override {
    const PooledConvolutionSpec sizes = pooled(inputs[0][0], inputs[0][1], inputs[0][2]);
    return window_ == 0 ? ops.convolution_memory(sizes.convolution, rows)
                        : ops.pooled_convolution_memory(sizes, rows);
  }
  bool gradients_apart() const override { return true; }
  bool backward_reads_output() const override {
    return window_ == 0 && activation_ == Activation::kRelu;
  }
  bool adds_gradient(const Ops& ops) const override { return window_ == 0 && ops.adds_gradients(); }
  bool takes_slices() const override { return true; }
  bool ends_chain() const override { return window_ > 0; }
  double work(std::span<const Shape> inputs) const override {
    const ConvolutionSpec s = spec(inputs[0][0], inputs[0][1], inputs[0][2]);
    return double(s.outputs()) * double(s.kernel_height * s.kernel_width * s.channels);
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    const Shape& x = a.x[0].shape;
    if (window_ > 0) {
      return context.ops->pooled_convolution_forward(
          context.state, pooled(x[1], x[2], x[3]), a.x[0], a.w[0],
          options_.bias ? a.w[1] : Tensor{}, a.y, {a.workspace, a.rows, a.first_row, a.slice});
    }
    context.ops->convolution_forward(context.state, spec(x[1], x[2], x[3]), a.x[0], a.w[0],
                                     options_.bias ? a.w[1] : Tensor{}, a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    const Shape& x = a.x[0].shape;
    if (window_ > 0) {
      return context.ops->pooled_convolution_backward(
          context.state, pooled(x[1], x[2], x[3]), a.x[0], a.dy, a.w[0], a.dx[0], a.dw[0],
          options_.bias ? a.dw[1] : Tensor{}, {a.workspace, a.rows, a.first_row, a.slice},
          a.accumulate);
    }
    ConvolutionSpec sizes = spec(x[1], x[2], x[3]);
    sizes.adds = a.adds;
    context.ops->convolution_backward(context.state, sizes, a.x[0], a.y, a.dy, a.w[0], a.dx[0],
                                      a.dw[0], options_.bias ? a.dw[1] : Tensor{},
                                      a.accumulate || !a.slice.first);
  }

 private:
  ConvolutionSpec spec(std::size_t height, std::size_t width, std::size_t channels) const {
    return {.height = height,
            .width = width,
            .channels = channels,
            .filters = filters_,
            .kernel_height = kernel_,
            .kernel_width = kernel_,
            .stride = options_.stride,
            .padding = options_.padding,
            .bias = options_.bias,
            .activation = activation_};
  }
  PooledConvolutionSpec pooled(std::size_t height, std::size_t width, std::size_t channels) const {
    return {spec(height, width, channels), window_};
  }
  std::size_t filters_, kernel_;
  ConvolutionOptions options_;
  Activation activation_;
  std::size_t window_;  // window of the fused pool; 0: none
};

}  // namespace

LayerPtr convolution(std::size_t filters, std::size_t kernel, ConvolutionOptions options) {
  require(filters > 0, "convolution: has 0 filters; at least 1 is needed");
  require(kernel > 0, "convolution: kernel is 0; at least 1 is needed");
  require(options.stride > 0, "convolution: stride is 0; at least 1 is needed");
  return std::make_shared<Convolution>(filters, kernel, options, Activation::kNone);
}

}  // namespace lockstep::engine
