// SPDX-License-Identifier: MIT
// Operands of devices whose memory is the host's.
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

void Ops::copy(const StepState* state, Tensor x, Tensor y) {
  const std::size_t bytes = std::size_t(state->examples) * x.columns() * size_of(x.dtype);
  if (bytes > 0) std::memmove(y.data, x.data, bytes);
}

}  // namespace lockstep::engine
