// SPDX-License-Identifier: MIT
#include "engine/nn/loss.h"

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

class SoftmaxCrossEntropy final : public Loss {
 public:
  std::string describe() const override { return "softmax_cross_entropy"; }
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
    context.ops->softmax_cross_entropy(context.state, y, target, dy, losses, correct);
  }
};

// Columns in any shape; nothing is counted as correct, so `correct` stays as it is: zero.
class MeanSquaredError final : public Loss {
 public:
  std::string describe() const override { return "mean_squared_error"; }
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

std::shared_ptr<const Loss> softmax_cross_entropy() {
  return std::make_shared<SoftmaxCrossEntropy>();
}

std::shared_ptr<const Loss> mean_squared_error() {
  return std::make_shared<MeanSquaredError>();
}

}  // namespace lockstep::engine
