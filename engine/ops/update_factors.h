// SPDX-License-Identifier: MIT
// What the updates of a step need of all its gradients, found once, before the first weight
// changes: from the sums of squares of all gradients, which every rank has in the same order, so
// that all ranks find the same bits. It lies in memory that kernels reach, and is read there by
// updates (engine/ops/reduce.h), so that on a device with a queue nobody waits for it.
//
// Squares. Of each kBlock elements of the arena one number, in the arena's order; where the rule
// needs norms of layers two for each part (what a segment has in one block), of the gradients and
// of the weights, those of a part at 2 (block + segment). They are added in this order.
//
// Found is, with s the loss scale of the step:
//   scale       min(1, clip / (|g| / s + 1e-12)) / s, and 1 / s where nothing is clipped
//   local rates of lars, of the squares of g divided by s^2 (engine/ops/update_rule.h)
//   skipped     where the loss scale is dynamic: whether any gradient is not finite
//
// Threads: as the reductions that they stand between. Plain data; whoever took the memory owns it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/ops/step_state.h"
#include "engine/ops/update_rule.h"

namespace lockstep::engine {

struct UpdateFactors {
  double scale = 1;          // of the gradients
  std::int64_t updates = 0;  // before this one: steps that were not skipped
  bool skipped = false;      // nothing changes
};

// Of a dynamic loss scale all that goes on from step to step. The same on all ranks.
struct LossScaleState {
  double scale = 1;           // of the next step's losses
  std::int64_t good = 0;      // steps since it changed, all of finite gradients
  std::int64_t skipped = 0;   // steps that were, of the whole run ...
  std::int64_t in_a_row = 0;  // ... and of the last ones
  bool operator==(const LossScaleState&) const = default;
};

// After a step. A scale that has fallen below LossScaling::kLeast falls no further: the run is to
// be ended.
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

// Where all of it lies, one behind the other in one block of memory.
struct UpdateMemory {
  UpdateFactors* factors = nullptr;
  LossScaleState* loss_scale = nullptr;
  UpdateSegment* segments = nullptr;  // what the updates are told of them, for lars
  double* local_rates = nullptr;      // of each segment
  static std::size_t bytes(std::size_t segments);
  static UpdateMemory in(std::byte* memory, std::size_t segments);
  // What stands there before the first step, in memory of the host.
  void begin(const UpdateRule& rule, std::span<const UpdateSegment> all) const;
};

struct FactorArguments {
  const UpdateRule* rule = nullptr;  // that needs something
  const StepState* state = nullptr;  // the step, and the loss scale where it is not dynamic
  const double* squares = nullptr;
  std::size_t blocks = 0;    // of the arena: kFiniteness, kGlobalNorm
  std::size_t segments = 0;  // kLayerNorms
  UpdateMemory memory = {};
};

// The squares of a part of the gradients; behind them those of the weights.
constexpr std::size_t squares_of_part(std::size_t block, std::size_t segment) {
  return 2 * (block + segment);
}

// On the host, in its memory. Cost: a load and an addition for each of the squares.
void find_factors(const FactorArguments& arguments);

}  // namespace lockstep::engine
