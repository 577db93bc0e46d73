// SPDX-License-Identifier: MIT
// Values that the updates of a step need of all gradients. They are computed once, before the first
// weight changes, from sums of squares. Every rank has these in the same order, so all ranks get
// the same bits. The values lie in memory that kernels access, and updates (engine/ops/reduce.h)
// read them there, so the host does not wait for them on a device with a queue.
//
// Squares: one number per kBlock elements of the arena, in the arena's order. If the rule needs
// norms of layers: two per part (a segment's elements in one block), of the gradients and of the
// weights, at 2 (block + segment). They are added in this order.
//
// The results are, with s the loss scale of the step:
//   scale       min(1, clip / (|g| / s + 1e-12)) / s, or 1 / s without clipping
//   local rates for lars, from the squares of g divided by s^2 (engine/ops/update_rule.h)
//   skipped     with a dynamic loss scale: whether any gradient is not finite
// Threads: as for the reductions around it. Plain data; the code that allocates the memory owns it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/ops/step_state.h"
#include "engine/ops/update_rule.h"

namespace lockstep::engine {

struct UpdateFactors {
  double scale = 1;          // factor of the gradients
  std::int64_t updates = 0;  // earlier steps that were not skipped
  bool skipped = false;      // nothing changes
};

// State of a dynamic loss scale, kept from step to step. It is the same on all ranks.
struct LossScaleState {
  double scale = 1;           // for the next step
  std::int64_t good = 0;      // steps with finite gradients since it changed
  std::int64_t skipped = 0;   // skipped steps of the whole run
  std::int64_t in_a_row = 0;  // latest consecutive skipped steps
  bool operator==(const LossScaleState&) const = default;
};

// Returns the state after a step. A scale that has fallen below LossScaling::kLeast falls no
// further; the caller must then end the run.
constexpr LossScaleState after_step(LossScaleState state, bool finite, const LossScaling& rule) {
  if (!finite) {
    state.good = 0;
    ++state.skipped;
    ++state.in_a_row;
    if (state.scale >= LossScaling::kLeast) state.scale *= 0.5;
    return state;
  }
  state.in_a_row = 0;
  if (++state.good < rule.growth_interval) return state;
  state.good = 0;
  if (state.scale <= LossScaling::kMost / 2) state.scale *= 2;
  return state;
}

// Pointers to the parts of one contiguous block of memory.
struct UpdateMemory {
  UpdateFactors* factors = nullptr;
  LossScaleState* loss_scale = nullptr;
  UpdateSegment* segments = nullptr;  // for lars
  double* local_rates = nullptr;      // one per segment
  static std::size_t bytes(std::size_t segments);
  static UpdateMemory in(std::byte* memory, std::size_t segments);
  // Writes the initial values; requires host memory.
  void begin(const UpdateRule& rule, std::span<const UpdateSegment> all) const;
};

struct FactorArguments {
  const UpdateRule* rule = nullptr;  // must need something (UpdateRule::needs)
  const StepState* state = nullptr;  // step, and loss scale unless dynamic
  const double* squares = nullptr;
  std::size_t blocks = 0;    // kFiniteness, kGlobalNorm: blocks of the arena
  std::size_t segments = 0;  // kLayerNorms
  UpdateMemory memory = {};
};

// Returns the index of the squares of a part's gradients; those of its weights follow.
constexpr std::size_t squares_of_part(std::size_t block, std::size_t segment) {
  return 2 * (block + segment);
}

// Computes the factors on the host, in its memory. Cost: a load and an addition per square.
void find_factors(const FactorArguments& arguments);

}  // namespace lockstep::engine
