// SPDX-License-Identifier: MIT
// The sum of checksum_word (engine/ops/definitions.h) over 4-byte words; the last one is padded
// with zeros. Compiled for each instruction set and chosen at run time. A pure function;
// thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cpu {

// Returns the checksum. `offset` counts the words before `data`, which need not be aligned.
std::uint64_t checksum(const std::byte* data, std::size_t bytes, std::size_t offset);

}  // namespace lockstep::engine::cpu
