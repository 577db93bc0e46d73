// SPDX-License-Identifier: MIT
#include "engine/nn/loss.h"

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

class SoftmaxCrossEntropy final : public Loss {
 public:
  explicit SoftmaxCrossEntropy(double smoothing) : smoothing_(smoothing) {}
  std::string describe() const override {
    return smoothing_ == 0 ? "softmax_cross_entropy"
                           : fmt::format("softmax_cross_entropy smoothing {}", smoothing_);
  }
  bool on_device() const override { return true; }
  std::size_t target_columns(const Shape& output) const override {
    require(output.rank() == 1 && output[0] >= 2,
            "loss softmax_cross_entropy: takes one logit for each of at least two classes, not {}; "
            "end with dense(classes)",
            to_string(output));
    return 1;
  }
  bool counts_correct() const override { return true; }
  void evaluate(Context& context, Tensor y, Tensor target, Tensor dy, Tensor losses,
                Tensor correct) const override {
    context.ops->softmax_cross_entropy(context.state, context.training ? smoothing_ : 0, y, target,
                                       dy, losses, correct);
  }

 private:
  double smoothing_;
};

// Works on columns of any shape. Nothing counts as correct, so `correct` stays zero.
class MeanSquaredError final : public Loss {
 public:
  std::string describe() const override { return "mean_squared_error"; }
  bool on_device() const override { return true; }
  std::size_t target_columns(const Shape& output) const override {
    require(output.elements() > 0,
            "loss mean_squared_error: takes an output of some elements, not {}", to_string(output));
    return output.elements();
  }
  void evaluate(Context& context, Tensor y, Tensor target, Tensor dy, Tensor losses,
                Tensor) const override {
    y.shape = dy.shape = target.shape;
    context.ops->squared_error(context.state, y, target, dy, losses);
  }
};

}  // namespace

std::shared_ptr<const Loss> softmax_cross_entropy(CrossEntropyOptions options) {
  require(options.smoothing >= 0 && options.smoothing < 1,
          "loss softmax_cross_entropy: smoothing is {}; it must be at least 0 and below 1",
          options.smoothing);
  return std::make_shared<SoftmaxCrossEntropy>(options.smoothing);
}

std::shared_ptr<const Loss> mean_squared_error() {
  return std::make_shared<MeanSquaredError>();
}

}  // namespace lockstep::engine
