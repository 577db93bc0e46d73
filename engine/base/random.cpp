// SPDX-License-Identifier: MIT
#include "engine/base/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/philox.h"

namespace lockstep::engine {
namespace {

// Applies the finalizer of splitmix64 (Steele, Lea and Flood 2014): every input bit affects every
// output bit.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

// Seed and hash are mixed one after the other, so that neither similar seeds nor similar names give
// similar keys.
std::uint64_t stream_key(std::uint64_t seed, std::string_view name) {
  return mixed(mixed(seed) ^ hash(name));
}

std::array<std::uint32_t, 4> random_bits(std::uint64_t key, std::uint64_t index,
                                         std::uint64_t position) {
  return philox(key, index, position);
}

std::uint32_t Random::bits() {
  if (used_ == 4) {
    numbers_ = random_bits(key_, index_, position_++);
    used_ = 0;
  }
  return numbers_[std::size_t(used_++)];
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Rejects the lowest 2^b mod bound of the numbers 0 .. 2^b - 1; the others are uniform modulo
// `bound`. b is 32 if the bound allows it, else 64.
std::uint64_t Random::below(std::uint64_t bound) {
  invariant(bound > 0, "a random number below nothing");
  if (bound <= 0xffffffff) {
    const std::uint32_t narrow = std::uint32_t(bound);
    const std::uint32_t thrown_away = (0u - narrow) % narrow;
    std::uint32_t drawn = bits();
    while (drawn < thrown_away) drawn = bits();
    return drawn % narrow;
  }
  const std::uint64_t thrown_away = (0 - bound) % bound;
  std::uint64_t drawn = 0;
  do {
    drawn = std::uint64_t(bits()) << 32;
    drawn |= bits();
  } while (drawn < thrown_away);
  return drawn % bound;
}

std::vector<std::uint64_t> permutation(std::uint64_t count, std::uint64_t key,
                                       std::uint64_t index) {
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t(0));
  Random random(key, index);
  for (std::uint64_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order;
}

}  // namespace lockstep::engine
