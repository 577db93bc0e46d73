// SPDX-License-Identifier: MIT
#include "engine/ops/update_factors.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/reduce.h"

namespace lockstep::engine {
namespace {

// `finite` tells whether all gradients are finite, according to their sums of squares.
struct Found {
  double scale = 1;
  bool finite = true;
};

// Checks each block without summing, because the sum of finite numbers may overflow.
Found look_at_blocks(const FactorArguments& a) {
  const auto all = std::span(a.squares, a.blocks);
  return {1, std::ranges::all_of(all, [](double squares) { return std::isfinite(squares); })};
}

Found clip(const FactorArguments& a, double loss_scale) {
  double squares = 0;
  for (std::size_t block = 0; block < a.blocks; ++block) squares += a.squares[block];
  const double norm = std::sqrt(squares) / loss_scale;
  return {std::min(1.0, a.rule->clip_norm / (norm + 1e-12)), std::isfinite(squares)};
}

Found find_local_rates(const FactorArguments& a, double loss_scale) {
  Found found;
  std::size_t begin = 0;
  for (std::size_t s = 0; s < a.segments; ++s) {
    const UpdateSegment& segment = a.memory.segments[s];
    double gradient = 0, weight = 0;
    for (std::size_t b = begin / kBlock; b * kBlock < segment.end; ++b) {
      const double* const part = a.squares + squares_of_part(b, s);
      gradient += part[0];
      weight += part[1];
    }
    found.finite &= std::isfinite(gradient);
    const double of_mean = gradient / (loss_scale * loss_scale);
    a.memory.local_rates[s] = segment.adapts ? a.rule->local_rate(of_mean, weight) : 1;
    begin = segment.end;
  }
  return found;
}

}  // namespace

std::size_t UpdateMemory::bytes(std::size_t segments) {
  return sizeof(UpdateFactors) + sizeof(LossScaleState) +
         segments * (sizeof(UpdateSegment) + sizeof(double));
}

UpdateMemory UpdateMemory::in(std::byte* memory, std::size_t segments) {
  static_assert(sizeof(UpdateFactors) % alignof(LossScaleState) == 0);
  static_assert(sizeof(LossScaleState) % alignof(UpdateSegment) == 0);
  static_assert(sizeof(UpdateSegment) % alignof(double) == 0);
  UpdateMemory all;
  all.factors = reinterpret_cast<UpdateFactors*>(memory);
  memory += sizeof(UpdateFactors);
  all.loss_scale = reinterpret_cast<LossScaleState*>(memory);
  memory += sizeof(LossScaleState);
  all.segments = reinterpret_cast<UpdateSegment*>(memory);
  memory += segments * sizeof(UpdateSegment);
  all.local_rates = reinterpret_cast<double*>(memory);
  return all;
}

void UpdateMemory::begin(const UpdateRule& rule, std::span<const UpdateSegment> all) const {
  *factors = {};
  *loss_scale = {.scale = rule.scaling.start};
  std::ranges::copy(all, segments);
  std::fill_n(local_rates, all.size(), 1.0);
}

void find_factors(const FactorArguments& a) {
  LossScaleState& scaling = *a.memory.loss_scale;
  const bool dynamic = a.rule->scaling.dynamic;
  const double loss_scale = dynamic ? scaling.scale : a.state->loss_scale;
  const Needs needs = a.rule->needs();
  invariant(needs != Needs::kNothing, "factors of a rule that needs nothing");
  const Found found = needs == Needs::kLayerNorms   ? find_local_rates(a, loss_scale)
                      : needs == Needs::kGlobalNorm ? clip(a, loss_scale)
                                                    : look_at_blocks(a);
  UpdateFactors& factors = *a.memory.factors;
  factors.scale = found.scale / loss_scale;
  factors.updates = a.state->step - (dynamic ? scaling.skipped : 0);
  factors.skipped = dynamic && !found.finite;
  if (dynamic) scaling = after_step(scaling, found.finite, a.rule->scaling);
}

}  // namespace lockstep::engine
