// SPDX-License-Identifier: MIT
// The sum of checksum_word (engine/ops/definitions.h) over words of 4 bytes, a last short one
// filled with zeros. Compiled for each instruction set and chosen as the program runs. A pure
// function; any thread.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cpu {

// `offset` counts words before `data`, which need not be aligned.
std::uint64_t checksum(const std::byte* data, std::size_t bytes, std::size_t offset);

}  // namespace lockstep::engine::cpu
