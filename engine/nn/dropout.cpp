// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

// Dropped units are drawn from (seed, layer, example, step, unit), so backward draws the mask of
// forward again and nothing is kept.
class Dropout final : public Layer {
 public:
  explicit Dropout(double rate) : rate_(rate) {}

  std::string describe() const override { return fmt::format("dropout {}", rate_); }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    return inputs[0];
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    apply(context, *a.name, a.x[0], a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    if (a.dx[0]) apply(context, *a.name, a.dy, a.dx[0]);
  }

 private:
  void apply(Context& context, const std::string& name, Tensor from, Tensor to) const {
    if (context.training && rate_ > 0) {
      context.ops->dropout(context.state, {rate_, stream_key(context.seed, name)}, from, to);
    } else {
      context.ops->copy(context.state, from, to);
    }
  }
  double rate_;
};

}  // namespace

LayerPtr dropout(double rate) {
  require(rate >= 0 && rate < 1, "dropout: rate {} is not a part of units; 0 <= rate < 1", rate);
  return std::make_shared<Dropout>(rate);
}

}  // namespace lockstep::engine
