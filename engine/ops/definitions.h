// SPDX-License-Identifier: MIT
// Numbers that must have the same bits on every device: which units dropout keeps, the terms of a
// checksum, the order of a batch's sum. Pure functions; thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/base/random.h"

namespace lockstep::engine {

// Returns the position of units 4 * quad .. 4 * quad + 3 in an example's random stream.
constexpr std::uint64_t dropout_position(std::int64_t step, std::size_t quad) {
  return (std::uint64_t(step) << 32) | std::uint64_t(quad);
}
// Returns the four random numbers of units 4 * quad .. 4 * quad + 3 of example `id` at `step`.
inline std::array<std::uint32_t, 4> dropout_bits(std::uint64_t key, std::int64_t id,
                                                 std::int64_t step, std::size_t quad) {
  return random_bits(key, std::uint64_t(id), dropout_position(step, quad));
}
constexpr bool dropout_keeps(std::uint32_t bits, double rate) {
  return uniform(bits) >= rate;
}

// Returns whether `number`, which comes from a file, is an integer in 0 .. count - 1. It is
// compared as floating point first, because NaN or a huge number must not be converted.
template <class T>
constexpr bool is_index(T number, std::size_t count) {
  return number >= 0 && double(number) < double(count) && T(std::size_t(number)) == number;
}

// Returns the factor of word `index` in a checksum: an odd number, different for each of 2^31
// words. It grows by the same amount from word to word.
constexpr std::uint32_t checksum_factor(std::uint64_t index) {
  return (2 * std::uint32_t(index) + 1) * 0x9e3779b1U;
}

// Returns the term of a word in the checksum. Changing a single word, or swapping two different
// words, always changes the sum. The term costs one multiplication because every step reads all
// weights.
constexpr std::uint64_t checksum_word(std::uint32_t word, std::uint64_t index) {
  return std::uint64_t(word) * checksum_factor(index);
}

// Returns the sum of `count` numbers as a balanced tree: the first (count + 1) / 2 and the rest,
// each added by the same rule; 0 if there are none.
inline double balanced_sum(const double* numbers, std::size_t count) {
  if (count == 0) return 0;
  if (count == 1) return numbers[0];
  const std::size_t half = (count + 1) / 2;
  return balanced_sum(numbers, half) + balanced_sum(numbers + half, count - half);
}

}  // namespace lockstep::engine
