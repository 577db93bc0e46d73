// SPDX-License-Identifier: MIT
// Sources and targets for tests of reductions, which run once on the processor, as the reference,
// and once in the emulator.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/base/random.h"
#include "engine/cuda/kernels/reduce.h"

namespace lockstep::engine::cuda {

inline const std::byte* bytes_of(const auto& numbers) {
  return reinterpret_cast<const std::byte*>(numbers.data());
}
inline std::byte* bytes_of(auto& numbers) {
  return reinterpret_cast<std::byte*>(numbers.data());
}

// Returns numbers whose sums depend on the order of addition, so only the same tree gives equal
// bits. Some sums overflow 16 bits, and some numbers underflow.
template <class T>
T uneven(std::size_t source, std::size_t i) {
  const auto bits = random_bits(9, source, i);
  const std::int64_t drawn = std::int64_t(bits[0] % 2001) - 1000;
  if constexpr (std::is_integral_v<T>) {
    return T(drawn * (std::int64_t(1) << (bits[1] % 40)));
  } else {
    const int least = sizeof(T) == 2 ? -28 : -20, most = sizeof(T) == 2 ? 5 : 20;
    const double size = std::ldexp(1.1, int(bits[1] % unsigned(most - least)) + least);
    if constexpr (std::is_same_v<T, double>) return double(drawn) * size;
    return T(float(double(drawn) * size));
  }
}

// Holds arrays of `count` elements, followed by one more; the operands begin at element `lead`.
template <class T>
struct Arrays {
  std::vector<std::vector<T>> memory;
  std::size_t lead;
  Arrays(std::size_t arrays, std::size_t count, std::size_t first, auto number) : lead(first) {
    for (std::size_t a = 0; a < arrays; ++a) {
      memory.emplace_back(lead + count + 1, T(77));
      for (std::size_t i = 0; i < count; ++i) memory[a][lead + i] = number(a, i);
    }
  }
  std::byte* data(std::size_t a) { return reinterpret_cast<std::byte*>(memory[a].data() + lead); }
  std::vector<const std::byte*> from() {
    std::vector<const std::byte*> all;
    for (std::size_t a = 0; a < memory.size(); ++a) all.push_back(data(a));
    return all;
  }
};

inline Sources sources_of(std::span<const std::byte* const> from) {
  Sources result;
  for (const std::byte* source : from) result.at[result.count++] = source;
  return result;
}
inline Targets targets_of(std::span<std::byte* const> to) {
  Targets result;
  for (std::byte* target : to) result.at[result.count++] = target;
  return result;
}

// Compares bit by bit, except that all NaNs are equal.
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof a[i]) != 0 && (a[i] == a[i] || b[i] == b[i])) return false;
  return a.size() == b.size();
}

}  // namespace lockstep::engine::cuda
