// SPDX-License-Identifier: MIT
// The options that an error may be about. A program can then name the flag or field by which the
// user changes them. Plain values.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep::engine {

enum class Option : std::uint8_t {
  kNone,
  kBatchNorm,
  kDevice,
  kDevices,
  kInsecure,
  kKeep,
  kKernels,
  kLabelSmoothing,
  kMemoryFraction,
  kPartition,
  kSeed,
  kServers,
  kStepsAhead,
  kTables,
};
inline constexpr Option kLastOption = Option::kTables;

// Returns the option's name, e.g. "label-smoothing"; empty for kNone.
std::string_view name(Option option);

}  // namespace lockstep::engine
