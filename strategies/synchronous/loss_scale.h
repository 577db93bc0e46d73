// SPDX-License-Identifier: MIT
// The dynamic loss scale of one replica between its steps (engine/ops/update_factors.h). It is in
// the kernels' memory, and the host never waits for a device with a queue. A copy after the
// previous updates puts the scale into a step's words. The host reads its values together with the
// step's other numbers. Owned by the mirror; only the replica's thread uses it.
#pragma once
#include <array>
#include <cstdint>

#include "engine/ops/ops.h"
#include "engine/train/strategy.h"

namespace lockstep::strategies {

// Returns the requested scaling; else that of the checkpoint's run; else dynamic scaling from 2^16
// on for float16, and none for other types. Throws Error(kInvalid) if the scaling is invalid.
engine::LossScaling scaling_of(const std::optional<engine::LossScaling>& asked,
                               const std::optional<engine::LossScaling>& before,
                               engine::DType dtype);
// Returns e.g. "dynamic, begun at 65536, doubled after 2000 steps", "512" or "none".
std::string text_of(const engine::LossScaling& scaling);

class LossScale {
 public:
  static constexpr const char* kArray = "loss_scale";  // name in checkpoints

  // Uses the words of UpdateMemory. They and `ops` must outlive this object.
  LossScale(engine::Ops& ops, engine::LossScaleState* words);
  // Notes that the words of a batch were published: they contain an old scale.
  void staged() { given_ = false; }
  // Copies the scale into the step's words. Call it after the updates of the previous step and
  // before the loss.
  void give(const engine::StepState* state, std::int64_t step);
  // Returns the state before this step or the last one, whose kernels must be done: the step's
  // scale. Throws Error(kInvalid) with the previous step if training cannot continue: the scale is
  // below LossScaling::kLeast, or kMostInARow consecutive steps were skipped.
  const engine::LossScaleState& before(std::int64_t step) const;
  // Returns the state for the next step. Call it between steps, after all updates. Waits for the
  // device.
  engine::LossScaleState now();
  // Save and restore: an array of float64. `download` fills it. `upload` applies it; if it is all
  // zeros (a checkpoint without one), the scale begins with `start`.
  engine::Piece piece();
  void download();
  void upload(double start);

 private:
  engine::Ops& ops_;
  engine::LossScaleState* words_;
  engine::Buffer noted_;  // shared: states of even and odd steps
  std::array<double, 4> saved_{};
  bool given_ = false;
};

}  // namespace lockstep::strategies
