// SPDX-License-Identifier: MIT
// The training objective: one number per example. Gradients are those of the mean over the examples
// that all replicas really saw, so short and empty shares are exact. A loss holds nothing of a
// step; one object serves all replicas.
#pragma once
#include <memory>
#include <string>

#include "engine/nn/layer.h"

namespace lockstep::engine {

class Loss {
 public:
  virtual ~Loss() = default;
  // Returns one line that contains every option of the loss: ranks and checkpoints compare it.
  virtual std::string describe() const = 0;
  // Returns how many float32 numbers a target has for this output, e.g. 1 for a class. Throws
  // Error(kInvalid) for an output that it cannot judge.
  virtual std::size_t target_columns(const Shape& output) const = 0;
  // Returns whether an accuracy makes sense. Else `correct` is ignored, and the accuracy is NaN.
  virtual bool counts_correct() const { return false; }
  virtual bool on_device() const { return false; }  // see Layer::on_device
  // Writes the loss of each of the first context.state->examples rows and, unless dy.data is null
  // (evaluation), the gradient of the mean loss over the global batch: it has the factor
  // state->inverse_examples * state->loss_scale. y and dy are of the graph's type, [rows,
  // ...output]. target is float32 [rows, target_columns], also if it is a class. losses and correct
  // are float64 [rows]. If counts_correct, `correct` is 1 for a right answer and else 0.
  virtual void evaluate(Context&, Tensor y, Tensor target, Tensor dy, Tensor losses,
                        Tensor correct) const = 0;
};

struct CrossEntropyOptions {
  // The part of each label that is spread evenly over all classes, so that the model need not be
  // surer than the labels: 0 <= smoothing < 1. It applies in training; evaluation gives the loss of
  // the original labels. Szegedy et al. 2016.
  double smoothing = 0;
};
// Expects an output [classes] and the class as target. Throws Error(kInvalid) for an invalid
// smoothing.
std::shared_ptr<const Loss> softmax_cross_entropy(CrossEntropyOptions options = {});
std::shared_ptr<const Loss> mean_squared_error();  // the target has the output's size

}  // namespace lockstep::engine
