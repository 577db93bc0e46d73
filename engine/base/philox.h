// SPDX-License-Identifier: MIT
// Philox4x32-10 as random_bits (engine/base/random.h) uses it, shared with GPU kernels:
// R123_CUDA_DEVICE makes it callable on the device. Pure; thread-safe.
#pragma once
#include <Random123/philox.h>

#include <array>
#include <cstdint>

namespace lockstep::engine {

// Returns four numbers of the stream `key` at counter (index, position).
R123_CUDA_DEVICE inline std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t index,
                                                            std::uint64_t position) {
  const r123::Philox4x32::ctr_type counter = {{std::uint32_t(index), std::uint32_t(index >> 32),
                                               std::uint32_t(position),
                                               std::uint32_t(position >> 32)}};
  const r123::Philox4x32::key_type words = {{std::uint32_t(key), std::uint32_t(key >> 32)}};
  const r123::Philox4x32::ctr_type bits = r123::Philox4x32()(counter, words);
  return {bits[0], bits[1], bits[2], bits[3]};
}

}  // namespace lockstep::engine
