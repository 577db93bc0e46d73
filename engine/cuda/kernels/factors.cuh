// SPDX-License-Identifier: MIT
// The update factors that depend on all gradients: see factors.h.
#pragma once
#include <cstddef>
#include <exact.cuh>
#include <grid.cuh>

#include "engine/cuda/kernels/factors.h"
#include "engine/ops/reduce.h"

namespace lockstep::engine::cuda {

__device__ inline bool is_finite(double number) {
  return minus(number, number) == 0;
}

// Returns in thread 0 whether `here` is true in all threads. All threads call it.
__device__ inline bool in_all(bool here) {
  bool* const each = shared<bool, FindFactors::kThreads>();
  each[thread()] = here;
  barrier();
  bool all = true;
  if (thread() == 0)
    for (unsigned t = 0; t < threads(); ++t) all = all && each[t];
  return all;
}

// Returns in thread 0 the sum of all numbers, added in order.
__device__ inline double sum_in_order(const double* numbers, std::size_t count) {
  constexpr std::size_t kAtOnce = 2048;
  double* const brought = shared<double, kAtOnce>();
  double sum = 0;
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    const std::size_t here = count - begin < kAtOnce ? count - begin : kAtOnce;
    for (std::size_t i = thread(); i < here; i += threads()) brought[i] = numbers[begin + i];
    barrier();
    if (thread() == 0)
      for (std::size_t i = 0; i < here; ++i) sum = plus(sum, brought[i]);
    barrier();
  }
  return sum;
}

// Computes UpdateRule::local_rate.
__device__ inline double local_rate(const UpdateRule& rule, double gradient, double weight) {
  if (gradient == 0 || weight == 0) return 1;
  const double norm = root(weight);
  const double below = plus(plus(root(gradient), times(rule.weight_decay, norm)), rule.epsilon);
  return divided(times(rule.trust, norm), below);
}

// Finds the local rates, one thread per segment. Returns whether the gradients of this thread's
// segments are finite.
__device__ inline bool find_local_rates(const FindFactors& a, double loss_scale) {
  bool finite = true;
  for (std::size_t s = thread(); s < a.segments; s += threads()) {
    const UpdateSegment segment = a.memory.segments[s];
    double gradient = 0, weight = 0;
    for (std::size_t b = s == 0 ? 0 : a.memory.segments[s - 1].end / kBlock;
         b * kBlock < segment.end; ++b) {
      const double* const part = a.squares + squares_of_part(b, s);
      gradient = plus(gradient, part[0]);
      weight = plus(weight, part[1]);
    }
    finite = finite && is_finite(gradient);
    const double of_mean = divided(gradient, times(loss_scale, loss_scale));
    a.memory.local_rates[s] = segment.adapts ? local_rate(a.rule, of_mean, weight) : 1;
  }
  return finite;
}

template <class T>
__device__ void run(const FindFactors& a) {
  const bool dynamic = a.rule.scaling.dynamic;
  const double loss_scale = dynamic ? a.memory.loss_scale->scale : a.state->loss_scale;
  double scale = 1;
  bool finite = true;
  if (a.rule.kind == UpdateKind::kLars) {
    finite = in_all(find_local_rates(a, loss_scale));
  } else if (a.rule.clip_norm > 0) {
    const double squares = sum_in_order(a.squares, a.blocks);
    const double norm = divided(root(squares), loss_scale);
    const double clipped = divided(a.rule.clip_norm, plus(norm, 1e-12));
    scale = clipped < 1 ? clipped : 1;
    finite = is_finite(squares);
  } else {
    for (std::size_t b = thread(); b < a.blocks; b += threads())
      finite = finite && is_finite(a.squares[b]);
    finite = in_all(finite);
  }
  barrier();  // all have read the loss scale
  if (thread() != 0) return;
  UpdateFactors& factors = *a.memory.factors;
  factors.scale = divided(scale, loss_scale);
  factors.updates = a.state->step - (dynamic ? a.memory.loss_scale->skipped : 0);
  factors.skipped = dynamic && !finite;
  if (dynamic) *a.memory.loss_scale = after_step(*a.memory.loss_scale, finite, a.rule.scaling);
}

}  // namespace lockstep::engine::cuda
