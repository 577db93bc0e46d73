// SPDX-License-Identifier: MIT
#include "strategies/synchronous/loss_scale.h"

#include <cmath>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::strategies {

using engine::LossScaleState;
using engine::LossScaling;

namespace {

void require_finite(const LossScaleState& state, std::int64_t step) {
  if (state.in_a_row < LossScaling::kMostInARow && state.scale >= LossScaling::kLeast) return;
  engine::fail(engine::Code::kInvalid,
               "the gradients are not finite at step {}, as at the {} steps before it, and a loss "
               "scale of {:g} does not help: try a smaller rate or clipping, or train in bfloat16 "
               "or float32",
               step + 1, state.in_a_row - 1, state.scale);
}

}  // namespace

LossScaling scaling_of(const std::optional<LossScaling>& asked,
                       const std::optional<LossScaling>& before, engine::DType dtype) {
  const LossScaling scaling = asked                              ? *asked
                              : before                           ? *before
                              : dtype == engine::DType::kFloat16 ? LossScaling::dynamically()
                                                                 : LossScaling();
  engine::require(scaling.start >= LossScaling::kLeast && scaling.start <= LossScaling::kMost,
                  "a loss scale of {:g}: it must be from 2^-14 to 2^64", scaling.start);
  engine::require(scaling.growth_interval >= 1,
                  "a loss scale that doubles every {} steps: it must be at least 1",
                  scaling.growth_interval);
  return scaling;
}

std::string text_of(const LossScaling& scaling) {
  if (scaling.dynamic)
    return fmt::format("dynamic, begun at {:g}, doubled after {} steps", scaling.start,
                       scaling.growth_interval);
  return scaling.start == 1 ? "none" : fmt::format("{:g}", scaling.start);
}

LossScale::LossScale(engine::Ops& ops, LossScaleState* words)
    : ops_(ops), words_(words), noted_(ops.allocate_shared(2 * sizeof(LossScaleState))) {}

// Published words are written by the host and read by kernels; kernels find this one value.
void LossScale::give(const engine::StepState* state, std::int64_t step) {
  if (std::exchange(given_, true)) return;
  ops_.copy_bytes(reinterpret_cast<const std::byte*>(&words_->scale),
                  reinterpret_cast<std::byte*>(const_cast<double*>(&state->loss_scale)),
                  sizeof(double));
  ops_.copy_bytes(reinterpret_cast<const std::byte*>(words_),
                  noted_.data() + std::size_t(step % 2) * sizeof(LossScaleState),
                  sizeof(LossScaleState));
}

const LossScaleState& LossScale::before(std::int64_t step) const {
  const LossScaleState& state = reinterpret_cast<const LossScaleState*>(noted_.data())[step % 2];
  require_finite(state, step - 1);
  return state;
}

LossScaleState LossScale::now() {
  LossScaleState state;
  ops_.read(reinterpret_cast<const std::byte*>(words_), &state, sizeof state);
  return state;
}

engine::Piece LossScale::piece() {
  return {kArray,
          {saved_.size()},
          engine::DType::kFloat64,
          {0, saved_.size()},
          reinterpret_cast<std::byte*>(saved_.data())};
}

void LossScale::download() {
  const LossScaleState state = now();
  saved_ = {state.scale, double(state.good), double(state.skipped), double(state.in_a_row)};
}

void LossScale::upload(double start) {
  LossScaleState state{saved_[0], std::int64_t(saved_[1]), std::int64_t(saved_[2]),
                       std::int64_t(saved_[3])};
  if (state.scale == 0) state = {.scale = start};
  ops_.write(&state, reinterpret_cast<std::byte*>(words_), sizeof state);
  ops_.synchronize();
}

}  // namespace lockstep::strategies
