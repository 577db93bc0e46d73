// SPDX-License-Identifier: MIT
// One call of a communicator, in the form in which ranks compare it before they run it.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "engine/tensor/tensor.h"

namespace lockstep::collectives {

// Describes a call by small integers, so that a sum with zeros carries them exactly.
struct RankCall {
  enum class Kind { kAllReduce = 1, kBroadcast, kBarrier, kAllocate, kBuckets, kBucket };
  static constexpr std::size_t kNumbers = 5;

  Kind kind = Kind::kBarrier;
  engine::DType dtype = engine::DType::kFloat32;
  int detail = 0;         // operation, root or bucket
  std::size_t count = 0;  // elements; gradients for kBuckets
  // 0: the caller's own memory. Otherwise the number of the `allocate` or, for kBucket, of the
  // buckets.
  std::size_t memory = 0;

  std::array<double, kNumbers> numbers() const;
  // Describes a call from its `numbers`: "all_reduce of 10 float32 (sum)". Appends to `text` or
  // returns the text.
  static void describe(const double* numbers, std::string& text);
  static std::string describe(const double* numbers);
  // Also appends the bytes that the call moves: ", 40 bytes". For errors.
  void describe_with_bytes(std::string& text) const;
};

}  // namespace lockstep::collectives
