// SPDX-License-Identifier: MIT
// Operand memory of devices that use host memory.
#include <cstring>

#include "engine/ops/ops.h"

namespace lockstep::engine {

Buffer Ops::allocate(std::size_t bytes, std::string_view) {
  return Buffer(bytes);
}

Buffer Ops::allocate_shared(std::size_t bytes) {
  return Buffer(bytes);
}

void Ops::write(const void* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Ops::read(const std::byte* from, void* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Ops::copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

const StepState* Ops::stage(const StepState& state, const HostBatch& batch, Tensor input,
                            Tensor target, std::int64_t* ids) {
  const StepState* const words = publish(state);
  if (state.examples == 0) return words;
  input.shape = Shape{std::size_t(state.examples), input.columns()};
  load(batch.inputs.data(), input);
  write(batch.targets.data(), target.data, batch.targets.size_bytes());
  write(batch.ids.data(), reinterpret_cast<std::byte*>(ids), batch.ids.size_bytes());
  return words;
}

void Ops::copy(const StepState* state, Tensor x, Tensor y) {
  const std::size_t bytes = std::size_t(state->examples) * x.columns() * size_of(x.dtype);
  if (bytes > 0) std::memmove(y.data, x.data, bytes);
}

}  // namespace lockstep::engine
