// SPDX-License-Identifier: MIT
// Reads float32 numbers from a file as 16-bit numbers, rounded to nearest, ties to even. Works
// block by block in 16 KiB of extra memory. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/checkpoint/storage.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// Reads `count` numbers, from byte `at` of the file on. `dtype`: float16 or bfloat16. Throws what
// Storage::read throws.
void read_rounded(Storage& storage, const std::string& path, std::uint64_t at, DType dtype,
                  std::size_t count, std::byte* to);

}  // namespace lockstep::engine
