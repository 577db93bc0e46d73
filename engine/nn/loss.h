// SPDX-License-Identifier: MIT
// What is made small: one number per example. Gradients are of the mean over the examples really
// seen by all replicas, so short and empty shares are exact. A loss holds nothing of a step; one
// object serves all replicas.
#pragma once
#include <memory>
#include <string>

#include "engine/nn/layer.h"

namespace lockstep::engine {

class Loss {
 public:
  virtual ~Loss() = default;
  virtual std::string describe() const = 0;
  // How many float32 numbers a target has for this output, e.g. 1 for a class.
  // Throws Error(kInvalid) for an output it cannot judge.
  virtual std::size_t target_columns(const Shape& output) const = 0;
  // An accuracy makes sense. Else `correct` is not looked at, and the accuracy is NaN.
  virtual bool counts_correct() const { return false; }
  virtual bool on_device() const { return false; }  // as a layer's
  // dy.data is null in evaluation. losses and correct are float64 [rows]; see Ops.
  virtual void evaluate(Context&, Tensor y, Tensor target, Tensor dy, Tensor losses,
                        Tensor correct) const = 0;
};

struct CrossEntropyOptions {
  // The part of each label that is spread evenly over all classes, so that the model need not be
  // surer than the labels are: 0 <= smoothing < 1. In training; evaluation gives the loss of the
  // labels as they are. Szegedy et al. 2016.
  double smoothing = 0;
};
// Output [classes], target the class. Throws Error(kInvalid) for a smoothing that makes no sense.
std::shared_ptr<const Loss> softmax_cross_entropy(CrossEntropyOptions options = {});
std::shared_ptr<const Loss> mean_squared_error();  // target as the output

}  // namespace lockstep::engine
