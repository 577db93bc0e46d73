// SPDX-License-Identifier: MIT
// An optimizer as the user names it: a base rate, its course, and the rule that kernels get. A
// value; owns nothing. What it keeps per weight belongs to the strategy.
#pragma once
#include <string>
#include <string_view>

#include "engine/ops/update_rule.h"
#include "engine/optim/schedule.h"

namespace lockstep::engine::optim {

struct Optimizer {
  double rate = 0;
  Schedule schedule = {};
  UpdateRule rule = {};
  std::string describe() const;  // "sgd rate 0.05 momentum 0.9, cosine to 0"
};

struct SgdOptions {
  double rate = 0.05;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  bool decay_all = false;  // else biases, and scale and shift of normalisations, do not decay
  double clip_norm = 0;    // 0: none
  Schedule schedule = {};
};
struct AdamOptions {
  double rate = 0.001;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;
  double clip_norm = 0;
  Schedule schedule = {};
};
// Large batches: each weight (a convolution's, a dense layer's) has a rate in proportion to its own
// norm over its gradient's, so that no layer moves too far; biases and normalisations take the rate
// as it is, and do not decay. The norms are known when all gradients are summed: the update is
// separate from the all-reduce. There is no clipping: a gradient that is too long is made short
// layer by layer.
struct LarsOptions {
  double rate = 1;
  double momentum = 0.9;
  double weight_decay = 0;
  double trust = 0.001;
  double epsilon = 0;
  Schedule schedule = {};
};
// All throw Error(kInvalid) naming the option that makes no sense (negative rate, momentum >= 1,
// ...).
Optimizer sgd(SgdOptions options = {});
Optimizer adam(AdamOptions options = {});
Optimizer adamw(AdamOptions options = {});  // weight_decay apart from the gradient
Optimizer lars(LarsOptions options = {});

}  // namespace lockstep::engine::optim
