// SPDX-License-Identifier: MIT
// Numbers that must have the same bits on every device, whoever computes them: which units dropout
// keeps, what a checksum mixes, in which order a batch is added. Pure functions; any thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/base/random.h"

namespace lockstep::engine {

// Where in the stream of an example the random numbers of its units 4 * quad .. 4 * quad + 3 stand.
constexpr std::uint64_t dropout_position(std::int64_t step, std::size_t quad) {
  return (std::uint64_t(step) << 32) | std::uint64_t(quad);
}
// The four random numbers of units 4 * quad .. 4 * quad + 3 of example `id` at `step`.
inline std::array<std::uint32_t, 4> dropout_bits(std::uint64_t key, std::int64_t id,
                                                 std::int64_t step, std::size_t quad) {
  return random_bits(key, std::uint64_t(id), dropout_position(step, quad));
}
constexpr bool dropout_keeps(std::uint32_t bits, double rate) {
  return uniform(bits) >= rate;
}

// Whether `number`, which came from a file, is a whole number of 0 .. count - 1. Compared as
// floating point first: NaN or a huge number must not be converted.
template <class T>
constexpr bool is_index(T number, std::size_t count) {
  return number >= 0 && double(number) < double(count) && T(std::size_t(number)) == number;
}

// The factor of word `index` of an array in a checksum: an odd number, a different one for each of
// 2^31 words. It grows by the same number from word to word.
constexpr std::uint32_t checksum_factor(std::uint64_t index) {
  return (2 * std::uint32_t(index) + 1) * 0x9e3779b1U;
}

// What a word adds to the checksum. A single changed word always changes the sum, and so do two
// that change places. One multiplication, since every weight is read for this in every step.
constexpr std::uint64_t checksum_word(std::uint32_t word, std::uint64_t index) {
  return std::uint64_t(word) * checksum_factor(index);
}

// The sum of `count` numbers as a balanced tree: the first (count + 1) / 2 and the rest, each added
// by the same rule. 0 for none.
inline double balanced_sum(const double* numbers, std::size_t count) {
  if (count == 0) return 0;
  if (count == 1) return numbers[0];
  const std::size_t half = (count + 1) / 2;
  return balanced_sum(numbers, half) + balanced_sum(numbers + half, count - half);
}

}  // namespace lockstep::engine
