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
  double clip_norm = 0;  // 0: none
  Schedule schedule = {};
};
struct AdamOptions {
  double rate = 0.001;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;
  Schedule schedule = {};
};
// All throw Error(kInvalid) naming the option that makes no sense (negative rate, momentum >= 1,
// ...).
Optimizer sgd(SgdOptions options = {});
Optimizer adam(AdamOptions options = {});
Optimizer adamw(AdamOptions options = {});  // weight_decay apart from the gradient

}  // namespace lockstep::engine::optim
