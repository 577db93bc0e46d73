// SPDX-License-Identifier: MIT
// The optimizers' rules (engine/ops/update_rule.h), element by element in Number, with the
// processor's bits. Each operation is rounded, and values common to all elements are first computed
// in float64.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exact.cuh>
#include <grid.cuh>

#include "engine/cuda/kernels/reduce.h"

namespace lockstep::engine::cuda {

// Represents a number of twice the precision, high + low.
struct Twofold {
  double high, low;
};

__device__ inline Twofold product(Twofold a, Twofold b) {
  const double high = times(a.high, b.high), below = fused(a.high, b.high, -high);
  const double low = plus(below, plus(times(a.high, b.low), times(a.low, b.high)));
  const double sum = plus(high, low);
  return {sum, minus(low, minus(sum, high))};
}

// Returns base^exponent by squaring, for a base from 0 to 1. The result is correctly rounded except
// in one of 2^40 cases. It thus equals the result of an exact library function, but not that of a
// fast one.
__device__ inline double power(double base, std::uint64_t exponent) {
  Twofold result{1, 0}, square{base, 0};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = product(result, square);
    square = product(square, square);
  }
  return result.high;
}

// The optimizer state of an element.
template <class Number>
struct Slots {
  Number values[UpdateRule::kMaxSlots];
};

// Returns which elements decay, in ascending order from `first` on.
class Decays {
 public:
  __device__ Decays(const UpdateTerms& terms, std::size_t first) : terms_(terms) {
    unsigned end = terms.boundary_count;
    while (boundaries_ < end) {
      const unsigned middle = (boundaries_ + end) / 2;
      if (terms.boundaries[middle] <= first) {
        boundaries_ = middle + 1;
      } else {
        end = middle;
      }
    }
    find_next();
  }
  __device__ bool at(std::size_t element) {
    while (element >= next_) ++boundaries_, find_next();
    return terms_.decays != (boundaries_ % 2 == 1);
  }

 private:
  __device__ void find_next() {
    next_ = boundaries_ < terms_.boundary_count ? terms_.boundaries[boundaries_] : ~std::size_t(0);
  }
  const UpdateTerms& terms_;
  unsigned boundaries_ = 0;  // at the element or before it
  std::size_t next_ = 0;
};

// Applies an update rule. All threads of a block construct it together.
template <class Number>
class Rule {
 public:
  __device__ explicit Rule(const UpdateTerms& terms) {
    const UpdateRule& rule = terms.rule;
    const double weight_decay = rule.weight_decay;
    const double step_rate = terms.state->rate;
    kind_ = rule.kind;
    nesterov_ = rule.nesterov;
    const UpdateFactors* const found = terms.factors;
    skips_ = found != nullptr && found->skipped;
    scale_ =
        Number(found != nullptr ? found->scale : divided(terms.scale, terms.state->loss_scale));
    decay_ = Number(weight_decay);
    rate_ = Number(step_rate);
    momentum_ = Number(rule.momentum);
    slots_ = rule.momentum != 0 ? 1 : 0;
    if (kind_ == UpdateKind::kSgd) return;
    slots_ = 1;
    if (kind_ == UpdateKind::kLars) {
      const double local = terms.found_rate != nullptr ? *terms.found_rate : terms.local_rate;
      rate_ = Number(times(step_rate, local));
      return;
    }
    slots_ = 2;
    epsilon_ = Number(rule.epsilon);
    beta1_ = Number(rule.beta1), beta2_ = Number(rule.beta2);
    rest1_ = Number(1 - rule.beta1), rest2_ = Number(1 - rule.beta2);
    if (kind_ == UpdateKind::kAdamW) {
      shrink_ = Number(times(step_rate, weight_decay));
      decay_ = 0;
    }
    double* const corrections = shared<double, 2>();
    if (thread() == 0) {
      const std::int64_t before = found != nullptr ? found->updates : terms.state->step;
      const std::uint64_t t = std::uint64_t(before) + 1;
      corrections[0] = 1 - power(rule.beta1, t);
      corrections[1] = 1 - power(rule.beta2, t);
    }
    barrier();
    rate_ = Number(divided(step_rate, corrections[0]));
    correct2_ = Number(divided(1.0, corrections[1]));
  }

  __device__ unsigned slots() const { return slots_; }
  __device__ bool skips() const { return skips_; }  // the step changes nothing

  // Returns the new weight from a sum of gradients and the old weight, with or without decay.
  // Updates the slots.
  __device__ Number next(Number sum, Number weight, bool decays, Slots<Number>& slots) const {
    const Number g = plus(times(scale_, sum), times(decays ? decay_ : Number(0), weight));
    Number &first = slots.values[0], &second = slots.values[1];
    if (kind_ == UpdateKind::kSgd) {
      if (slots_ == 0) return minus(weight, times(rate_, g));
      first = plus(times(momentum_, first), g);
      const Number of_gradient = nesterov_ ? Number(1) : Number(0);
      const Number of_velocity = nesterov_ ? momentum_ : Number(1);
      const Number move = plus(times(of_gradient, g), times(of_velocity, first));
      return minus(weight, times(rate_, move));
    }
    if (kind_ == UpdateKind::kLars) {
      first = plus(times(momentum_, first), times(rate_, g));
      return minus(weight, first);
    }
    first = plus(times(beta1_, first), times(rest1_, g));
    second = plus(times(beta2_, second), times(times(rest2_, g), g));
    const Number size = plus(root(times(second, correct2_)), epsilon_);
    const Number kept = minus(weight, times(decays ? shrink_ : Number(0), weight));
    return minus(kept, divided(times(rate_, first), size));
  }

 private:
  UpdateKind kind_ = UpdateKind::kSgd;
  bool nesterov_ = false, skips_ = false;
  unsigned slots_ = 0;
  Number scale_ = 1, rate_ = 0, decay_ = 0, momentum_ = 0;
  Number epsilon_ = 0, beta1_ = 0, beta2_ = 0, rest1_ = 0, rest2_ = 0, shrink_ = 0, correct2_ = 0;
};

}  // namespace lockstep::engine::cuda
