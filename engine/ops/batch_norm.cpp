// SPDX-License-Identifier: MIT
#include "engine/ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/ops.h"

namespace lockstep::engine {

void Ops::batch_norm_pair_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                        const BatchNormPair& pair, bool accumulate,
                                        const std::array<BatchNormGradients, 2>& results) {
  for (std::size_t k = 0; k < 2; ++k)
    batch_norm_gradient_sums(state, spec, pair[k], results[k].dscale, results[k].dshift, accumulate,
                             results[k].sums);
}

void Ops::batch_norm_pair_backward(const StepState* state, const BatchNormSpec& spec,
                                   const BatchNormPair& pair) {
  for (const BatchNormBackward& call : pair)
    if (call.dx) batch_norm_backward(state, spec, call);
}

void Ops::batch_norm_moments(const BatchNormSpec& spec, const BatchNormMoments& call) {
  const std::size_t channels = spec.channels;
  const double n = call.sums[2 * channels], count = std::max(1.0, n);
  const double unbiased = n > 1 ? n / (n - 1) : 1;
  *call.count = count;
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = call.sums[c] / count;
    const double variance = std::max(0.0, call.sums[channels + c] / count - mean * mean);
    call.moments[c] = mean;
    call.moments[channels + c] = 1 / std::sqrt(variance + spec.epsilon);
    if (n == 0 || call.averages == nullptr) continue;
    double &means = call.averages[c], &variances = call.averages[channels + c];
    means = call.keep * means + (1 - call.keep) * mean;
    variances = call.keep * variances + (1 - call.keep) * unbiased * variance;
  }
}

void Ops::batch_norm_fixed_moments(const BatchNormSpec& spec, const double* averages,
                                   double* moments) {
  for (std::size_t c = 0; c < spec.channels; ++c) {
    moments[c] = averages[c];
    moments[spec.channels + c] = 1 / std::sqrt(averages[spec.channels + c] + spec.epsilon);
  }
}

}  // namespace lockstep::engine
