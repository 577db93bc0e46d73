// SPDX-License-Identifier: MIT
#include "engine/checkpoint/rounded_read.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/base/error.h"

namespace lockstep::engine {

void read_rounded(Storage& storage, const std::string& path, std::uint64_t at, DType dtype,
                  std::size_t count, std::byte* to) {
  invariant(size_of(dtype) == 2, "numbers rounded to another type than one of 16 bits");
  std::array<float, 4096> block;
  for (std::size_t done = 0; done < count; done += block.size()) {
    const auto part = std::span(block).first(std::min(block.size(), count - done));
    storage.read(path, at + done * sizeof(float), std::as_writable_bytes(part));
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (dtype == DType::kBFloat16) {
        reinterpret_cast<BFloat16*>(to)[done + i] = BFloat16(part[i]);
      } else {
        reinterpret_cast<Half*>(to)[done + i] = Half(part[i]);
      }
    }
  }
}

}  // namespace lockstep::engine
