// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

// Of a sum over replicas, the numbers of reductions: forward's and backward's.
constexpr int kForwardSums = 0, kGradientSums = 1;

// Where ReLU, or a second input that is added before it, was fused, that runs in the same pass.
class BatchNorm final : public Layer {
 public:
  BatchNorm(const BatchNormOptions& options, Activation activation, bool adds)
      : options_(options), activation_(activation), adds_(adds) {}

  std::string describe() const override {
    return fmt::format("batch_norm, momentum {}, epsilon {}{}{}{}", options_.momentum,
                       options_.epsilon, options_.synchronised ? ", synchronised" : "",
                       adds_ ? ", add" : "", activation_ == Activation::kRelu ? ", relu" : "");
  }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == (adds_ ? 2 : 1), "takes {}, not {}",
            adds_ ? "two inputs" : "one input", inputs.size());
    require(inputs[0].rank() >= 1 && inputs[0].elements() > 0,
            "takes an input of at least one channel, not {}", to_string(inputs[0]));
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const std::size_t channels = spec(inputs[0], 0).channels;
    return {{"scale", {channels}, constant(1), Group::kNorm},
            {"shift", {channels}, constant(0), Group::kNorm}};
  }
  std::vector<StatisticSpec> statistics(std::span<const Shape> inputs) const override {
    const std::size_t channels = spec(inputs[0], 0).channels;
    return {{"mean", channels, 0}, {"variance", channels, 1}};
  }
  std::vector<ReductionSpec> reductions(std::span<const Shape> inputs) const override {
    if (!options_.synchronised) return {};
    const BatchNormSpec s = spec(inputs[0], 0);
    return {{"sums", s.sums()}, {"gradient_sums", s.gradient_sums()}};
  }
  std::size_t workspace(Ops&, std::span<const Shape> inputs, std::size_t rows) const override {
    const BatchNormSpec s = spec(inputs[0], 0);
    return Workspace::bytes(s) + rows * s.mask_of_row();
  }
  LayerPtr with_relu() const override {
    if (activation_ != Activation::kNone) return nullptr;
    return std::make_shared<BatchNorm>(options_, Activation::kRelu, adds_);
  }
  LayerPtr with_add() const override {
    if (activation_ != Activation::kNone || adds_) return nullptr;
    return std::make_shared<BatchNorm>(options_, activation_, true);
  }
  bool backward_reads_output() const override { return false; }
  bool backward_reads_input(std::size_t input) const override { return input == 0; }

  void forward(Context& context, const ForwardArguments& a) const override {
    const BatchNormSpec s = spec(a.x[0].shape, 1);
    const Workspace kept(s, a.workspace);
    if (!context.training) {
      context.ops->batch_norm_fixed_moments(s, a.statistics, kept.moments);
    } else if (!a.again) {
      find_moments(context, s, a, kept);
    }
    BatchNormForward call{a.x[0], a.w[0], a.w[1]};
    if (adds_) call.other = a.x[1];
    call.y = a.y;
    call.moments = kept.moments;
    call.mask = kept.mask;
    context.ops->batch_norm_forward(context.state, s, call);
  }

  void backward(Context& context, const BackwardArguments& a) const override {
    const BatchNormSpec s = spec(a.x[0].shape, 1);
    const Workspace kept(s, a.workspace);
    BatchNormBackward call{a.x[0], a.dy, a.w[0]};
    call.moments = kept.moments;
    call.mask = kept.mask;
    const bool synchronised = options_.synchronised && context.training;
    context.ops->batch_norm_gradient_sums(context.state, s, call, a.dw[0], a.dw[1], a.accumulate,
                                          kept.sums);
    if (synchronised) add_up(context, a.point + kGradientSums, kept.sums, s.gradient_sums());
    call.dx = a.dx[0];
    if (adds_) call.dother = a.dx[1];
    if (!call.dx && !call.dother) return;
    if (context.training) call.sums = kept.sums, call.count = kept.count;
    context.ops->batch_norm_backward(context.state, s, call);
  }

 private:
  // What lies in the layer's workspace from forward to backward: moments, how many values they are
  // of, room for sums, the bits of ReLU.
  struct Workspace {
    double *moments, *count, *sums;
    std::uint8_t* mask;
    Workspace(const BatchNormSpec& s, std::byte* memory)
        : moments(reinterpret_cast<double*>(memory)),
          count(moments + s.moments()),
          sums(count + 1),
          mask(reinterpret_cast<std::uint8_t*>(memory + bytes(s))) {}
    static std::size_t bytes(const BatchNormSpec& s) {
      return (s.moments() + 1 + s.sums()) * sizeof(double);
    }
  };

  // Of a shape whose last extent is the channels, after `skip` that do not count.
  BatchNormSpec spec(const Shape& shape, std::size_t skip) const {
    const std::size_t channels = shape[shape.rank() - 1];
    std::size_t positions = 1;
    for (std::size_t i = skip; i + 1 < shape.rank(); ++i) positions *= shape[i];
    return {positions, channels, options_.epsilon, activation_};
  }

  // Over all replicas: the sums there become theirs. Where kernels are queued so is all of this.
  static void add_up(Context& context, int point, double* sums, std::size_t count) {
    std::byte* const exchange = context.exchange(point);
    std::byte* const here = reinterpret_cast<std::byte*>(sums);
    context.ops->copy_bytes(here, exchange, count * sizeof(double));
    context.reduce(point);
    context.ops->copy_bytes(exchange, here, count * sizeof(double));
  }

  void find_moments(Context& context, const BatchNormSpec& s, const ForwardArguments& a,
                    const Workspace& kept) const {
    const BatchNormMoments call{kept.sums, kept.moments, kept.count, a.statistics,
                                options_.momentum};
    if (!options_.synchronised)
      return context.ops->batch_norm_statistics(context.state, s, a.x[0], kept.sums, call);
    context.ops->batch_norm_sums(context.state, s, a.x[0], kept.sums);
    add_up(context, a.point + kForwardSums, kept.sums, s.sums());
    context.ops->batch_norm_moments(s, call);
  }

  BatchNormOptions options_;
  Activation activation_;
  bool adds_;
};

}  // namespace

LayerPtr batch_norm(BatchNormOptions options) {
  require(options.momentum >= 0 && options.momentum < 1,
          "batch_norm: momentum {} is not a part that is kept; 0 <= momentum < 1",
          options.momentum);
  require(std::isfinite(options.epsilon) && options.epsilon > 0,
          "batch_norm: epsilon is {}; it must be above 0", options.epsilon);
  return std::make_shared<BatchNorm>(options, Activation::kNone, false);
}

}  // namespace lockstep::engine
