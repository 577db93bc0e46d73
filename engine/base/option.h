// SPDX-License-Identifier: MIT
// The options that an error may be about, so that a program can say by which of its flags or fields
// a user changes them. Plain values.
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

// "label-smoothing"; empty for kNone.
std::string_view name(Option option);

}  // namespace lockstep::engine
