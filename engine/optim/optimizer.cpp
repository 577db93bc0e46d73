// SPDX-License-Identifier: MIT
#include "engine/optim/optimizer.h"

#include <cmath>

#include "engine/base/error.h"

namespace lockstep::engine::optim {
namespace {

void require_at_least_zero(std::string_view optimizer, std::string_view option, double value) {
  require(std::isfinite(value) && value >= 0, "{}: {} is {}; it must be 0 or more", optimizer,
          option, value);
}

void require_part(std::string_view optimizer, std::string_view option, double value) {
  require(value >= 0 && value < 1, "{}: {} is {}; it must be at least 0 and below 1", optimizer,
          option, value);
}

void check_schedule(std::string_view optimizer, const Schedule& schedule) {
  require(schedule.warm_up >= 0, "{}: warm_up is {}; it is a number of steps, 0 or more", optimizer,
          schedule.warm_up);
  require(schedule.last >= 0 && schedule.last <= 1, "{}: last is {}; it must lie in 0 to 1",
          optimizer, schedule.last);
}

Optimizer adaptive(UpdateKind kind, const AdamOptions& options) {
  const std::string_view name = kind == UpdateKind::kAdam ? "adam" : "adamw";
  require_at_least_zero(name, "rate", options.rate);
  require_part(name, "beta1", options.beta1);
  require_part(name, "beta2", options.beta2);
  require(std::isfinite(options.epsilon) && options.epsilon > 0,
          "{}: epsilon is {}; it must be above 0", name, options.epsilon);
  require_at_least_zero(name, "weight_decay", options.weight_decay);
  require_at_least_zero(name, "clip_norm", options.clip_norm);
  check_schedule(name, options.schedule);
  UpdateRule rule;
  rule.kind = kind;
  rule.beta1 = options.beta1;
  rule.beta2 = options.beta2;
  rule.epsilon = options.epsilon;
  rule.weight_decay = options.weight_decay;
  rule.decay_all = options.decay_all;
  rule.clip_norm = options.clip_norm;
  return {options.rate, options.schedule, rule};
}

}  // namespace

Optimizer sgd(SgdOptions options) {
  require_at_least_zero("sgd", "rate", options.rate);
  require_part("sgd", "momentum", options.momentum);
  require(!options.nesterov || options.momentum > 0,
          "sgd: nesterov needs a momentum above 0, e.g. 0.9");
  require_at_least_zero("sgd", "weight_decay", options.weight_decay);
  require_at_least_zero("sgd", "clip_norm", options.clip_norm);
  check_schedule("sgd", options.schedule);
  UpdateRule rule;
  rule.kind = UpdateKind::kSgd;
  rule.momentum = options.momentum;
  rule.nesterov = options.nesterov;
  rule.weight_decay = options.weight_decay;
  rule.decay_all = options.decay_all;
  rule.clip_norm = options.clip_norm;
  return {options.rate, options.schedule, rule};
}

Optimizer adam(AdamOptions options) {
  return adaptive(UpdateKind::kAdam, options);
}

Optimizer adamw(AdamOptions options) {
  return adaptive(UpdateKind::kAdamW, options);
}

Optimizer lars(LarsOptions options) {
  require_at_least_zero("lars", "rate", options.rate);
  require_part("lars", "momentum", options.momentum);
  require_at_least_zero("lars", "weight_decay", options.weight_decay);
  require(std::isfinite(options.trust) && options.trust > 0,
          "lars: trust is {}; it must be above 0", options.trust);
  require_at_least_zero("lars", "epsilon", options.epsilon);
  check_schedule("lars", options.schedule);
  UpdateRule rule;
  rule.kind = UpdateKind::kLars;
  rule.momentum = options.momentum;
  rule.weight_decay = options.weight_decay;
  rule.trust = options.trust;
  rule.epsilon = options.epsilon;
  return {options.rate, options.schedule, rule};
}

std::string Optimizer::describe() const {
  std::string text;
  if (rule.kind == UpdateKind::kSgd) {
    text = fmt::format("sgd rate {}", rate);
    if (rule.momentum > 0) text += fmt::format(" momentum {}", rule.momentum);
    if (rule.nesterov) text += " nesterov";
  } else if (rule.kind == UpdateKind::kLars) {
    text = fmt::format("lars rate {} momentum {} trust {} epsilon {}", rate, rule.momentum,
                       rule.trust, rule.epsilon);
  } else {
    text = fmt::format("{} rate {} beta1 {} beta2 {} epsilon {}",
                       rule.kind == UpdateKind::kAdam ? "adam" : "adamw", rate, rule.beta1,
                       rule.beta2, rule.epsilon);
  }
  if (rule.weight_decay > 0)
    text += fmt::format(" weight_decay {} of {}", rule.weight_decay,
                        rule.decay_all ? "all parameters" : "weights");
  if (rule.clip_norm > 0) text += fmt::format(" clip_norm {}", rule.clip_norm);
  return text + ", " + schedule.describe();
}

}  // namespace lockstep::engine::optim
