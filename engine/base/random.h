// SPDX-License-Identifier: MIT
// Counter-based random numbers: the number at (key, index, position) is a pure function
// (Philox4x32-10, Salmon et al. 2011, through Random123). It is the same on every device and for
// any number of replicas. Stateless and thread-safe; four numbers cost about 20 ns.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::engine {

// Returns the key of a stream (e.g. of a layer) from the run's seed and a name.
std::uint64_t stream_key(std::uint64_t seed, std::string_view name);

// Returns four 32-bit numbers at counter (index, position).
std::array<std::uint32_t, 4> random_bits(std::uint64_t key, std::uint64_t index,
                                         std::uint64_t position);

constexpr double uniform(std::uint32_t bits) {
  return (double(bits) + 0.5) * 0x1p-32;
}  // (0, 1)

// Draws the numbers of (key, index) in order, for host code that needs many.
class Random {
 public:
  explicit Random(std::uint64_t key, std::uint64_t index = 0) : key_(key), index_(index) {}
  std::uint32_t bits();
  double uniform() { return engine::uniform(bits()); }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal();                           // mean 0, variance 1 (Box and Muller)
  std::uint64_t below(std::uint64_t bound);  // unbiased, in [0, bound); bound > 0

 private:
  std::uint64_t key_, index_, position_ = 0;
  std::array<std::uint32_t, 4> numbers_{};
  int used_ = 4;
};

// Returns 0 .. count - 1 in an order drawn from (key, index), by Fisher and Yates. Costs 8 bytes
// and about 20 ns per number.
std::vector<std::uint64_t> permutation(std::uint64_t count, std::uint64_t key, std::uint64_t index);

}  // namespace lockstep::engine
