// SPDX-License-Identifier: MIT
// One call of a communicator, as ranks compare it before they do it.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "engine/tensor/tensor.h"

namespace lockstep::collectives {

// What a rank asks for: small whole numbers, so that a sum with zeros carries them exactly.
struct RankCall {
  enum class Kind { kAllReduce = 1, kBroadcast, kBarrier, kAllocate, kBuckets, kBucket };
  static constexpr std::size_t kNumbers = 5;

  Kind kind = Kind::kBarrier;
  engine::DType dtype = engine::DType::kFloat32;
  int detail = 0;         // the operation, the root, or the bucket
  std::size_t count = 0;  // elements; of kBuckets, gradients
  // 0: the caller's own memory; else which of `allocate`, or, of kBucket, of the buckets made.
  std::size_t memory = 0;

  std::array<double, kNumbers> numbers() const;
  // "all_reduce of 10 float32 (sum)", from `numbers`; behind what `text` has.
  static void describe(const double* numbers, std::string& text);
  static std::string describe(const double* numbers);
  // The same, and how many bytes it moves: ", 40 bytes". For errors.
  void describe_with_bytes(std::string& text) const;
};

}  // namespace lockstep::collectives
