// SPDX-License-Identifier: MIT
// float32 from a file to numbers of 16 bits in memory, rounded to the nearest, of two as near the
// even one. Block by block: it takes 16 KiB beside. Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/checkpoint/storage.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// `count` numbers from byte `at` of the file on; `dtype`: float16 or bfloat16. Throws what
// Storage::read throws.
void read_rounded(Storage& storage, const std::string& path, std::uint64_t at, DType dtype,
                  std::size_t count, std::byte* to);

}  // namespace lockstep::engine
