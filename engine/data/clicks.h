// SPDX-License-Identifier: MIT
// The format of an example in Criteo's data: 13 numbers, then 26 ids, one per field, all float32
// (so ids stay below 2^24). The target says whether there was a click. Pure; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/data/sets.h"

namespace lockstep::engine::data {

inline constexpr std::size_t kClickNumbers = 13, kClickFields = 26;
inline constexpr std::size_t kClickColumns = kClickNumbers + kClickFields;
inline constexpr std::size_t kMostBuckets = std::size_t(1) << 24;

// Throws Error(kInvalid) unless 1 <= buckets <= kMostBuckets.
void check_buckets(std::size_t buckets);

}  // namespace lockstep::engine::data
