// SPDX-License-Identifier: MIT
// An optimizer as the user names it: a base rate, its schedule, and the rule for kernels. A value;
// owns nothing. The strategy holds the state of each weight.
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
  bool decay_all = false;  // false: biases and normalization parameters do not decay
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
// LARS, for large batches, gives each weight (of a convolution or a dense layer) a rate in
// proportion to its norm over its gradient's norm. So no layer moves too far. Biases and
// normalizations take the rate unchanged and do not decay. The norms are known only when all
// gradients are summed, so the update is separate from the all-reduce. There is no clipping,
// because long gradients are shortened layer by layer.
struct LarsOptions {
  double rate = 1;
  double momentum = 0.9;
  double weight_decay = 0;
  double trust = 0.001;
  double epsilon = 0;
  Schedule schedule = {};
};
// All throw Error(kInvalid) that names an invalid option (negative rate, momentum >= 1, ...).
Optimizer sgd(SgdOptions options = {});
Optimizer adam(AdamOptions options = {});
Optimizer adamw(AdamOptions options = {});  // decoupled weight_decay
Optimizer lars(LarsOptions options = {});

}  // namespace lockstep::engine::optim
