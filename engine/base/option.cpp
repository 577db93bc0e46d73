// SPDX-License-Identifier: MIT
#include "engine/base/option.h"

#include <array>
#include <cstddef>

namespace lockstep::engine {

std::string_view name(Option option) {
  static constexpr std::array<std::string_view, std::size_t(kLastOption) + 1> kNames{
      "",     "batch-norm", "device",          "devices",         "insecure",
      "keep", "kernels",    "label-smoothing", "memory-fraction", "partition",
      "seed", "servers",    "steps-ahead",     "tables"};
  return kNames[std::size_t(option)];
}

}  // namespace lockstep::engine
