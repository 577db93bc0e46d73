// SPDX-License-Identifier: MIT
// The dynamic loss scale of one replica between its steps (engine/ops/update_factors.h). It lies
// where kernels keep it, and on a device with a queue the host never waits for it: a step's words
// get it by a copy behind the updates before, and what the host is to know of a step is read with
// the step's other numbers. Owned by the mirror; the replica's thread uses it.
#pragma once
#include <array>
#include <cstdint>

#include "engine/ops/ops.h"
#include "engine/train/strategy.h"

namespace lockstep::strategies {

// What is asked for; else what a checkpoint's run had, where one goes on; else float16 is scaled
// dynamically, from 2^16 on, and all else is not. Error(kInvalid) for a scaling that cannot be.
engine::LossScaling scaling_of(const std::optional<engine::LossScaling>& asked,
                               const std::optional<engine::LossScaling>& before,
                               engine::DType dtype);
// "dynamic, from 65536 on", "512", "none"
std::string text_of(const engine::LossScaling& scaling);

class LossScale {
 public:
  static constexpr const char* kArray = "loss_scale";  // in checkpoints

  // `words`: of UpdateMemory. `ops` and they outlive this.
  LossScale(engine::Ops& ops, engine::LossScaleState* words);
  // The words of a batch were published: they have a scale of before.
  void staged() { given_ = false; }
  // Behind the updates of the step before, and before the loss: gives the step's words its scale.
  void give(const engine::StepState* state, std::int64_t step);
  // What stood before this step or the last one, whose kernels are done: the step's scale. Throws
  // Error(kInvalid), which names the step before, where training cannot go on.
  const engine::LossScaleState& before(std::int64_t step) const;
  // Between steps, when all updates are done: of the next step. Waits.
  engine::LossScaleState now();
  // For checkpoints: an array of float64, which `download` fills. `upload` takes it; where it is
  // all zeros, as where a checkpoint has none, everything begins with `start`.
  engine::Piece piece();
  void download();
  void upload(double start);

 private:
  engine::Ops& ops_;
  engine::LossScaleState* words_;
  engine::Buffer noted_;  // shared: a state of even steps, and one of odd ones
  std::array<double, 4> saved_{};
  bool given_ = false;
};

}  // namespace lockstep::strategies
