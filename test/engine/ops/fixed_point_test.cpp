// SPDX-License-Identifier: MIT
// Tests that fixed-point numbers have the same bits with every instruction set, so jobs with
// different processors compute the same sums. test/collectives/communicator/reproducible_test.cpp
// tests that the sums are correct.
#include "engine/ops/fixed_point.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/random.h"
#include "test/engine/ops/instruction_sets.h"

namespace lockstep::engine {
namespace fixed_point_test {

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
constexpr std::size_t kCounts[] = {0, 1, 7, 16, 33, 1024};

// Returns arbitrary bits: numbers of every size, infinities, and NaNs.
std::vector<std::byte> any_bits(std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::size_t at = 0; at < bytes; at += 4) {
    const std::uint32_t word = random_bits(3, 1, at)[0];
    std::memcpy(all.data() + at, &word, std::min<std::size_t>(4, bytes - at));
  }
  return all;
}

// Returns the bits of extents, limbs, and numbers, for sums of maximal size and for means.
std::string everything() {
  std::string bits;
  const auto keep = [&](const auto* data, std::size_t count) {
    bits.append(reinterpret_cast<const char*>(data), count * sizeof *data);
  };
  for (const DType dtype : kTypes)
    for (const std::size_t count : kCounts)
      for (const int ranks : {1, 3, 64}) {
        std::vector<std::byte> x = any_bits(count * size_of(dtype));
        const FixedExtent extent = fixed_extent(dtype, x.data(), count);
        const FixedGrid grid{extent.exponent, fixed_bits(ranks)};
        std::vector<std::int64_t> whole(count), rest(count);
        to_fixed(dtype, x.data(), count, grid, whole.data(), rest.data());
        keep(&extent, 1), keep(whole.data(), count), keep(rest.data(), count);
        for (std::vector<std::int64_t>* limbs : {&whole, &rest})
          for (std::int64_t& limb : *limbs) limb *= ranks;
        for (const double scale : {1.0, 1.0 / ranks}) {
          from_fixed(dtype, whole.data(), rest.data(), count, grid, scale, x.data());
          keep(x.data(), x.size());
        }
      }
  return bits;
}

TEST(FixedPoint, HasTheSameBitsByEveryInstructionSet) {
  InstructionSets sets;
  std::string first;
  for (const std::int64_t set : sets.all()) {
    const std::string name = sets.use(set), now = everything();
    if (first.empty()) first = now;
    EXPECT_TRUE(now == first) << name;
  }
}

TEST(FixedPoint, OfOneRankGivesBackWhatItGot) {
  for (const double x :
       {0.0, 1.0, -0.75, 0x1p-1074, -0x1.fffffffffffffp1023, 0x1.23456789abcdep-300}) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&x);
    const FixedGrid grid{fixed_extent(DType::kFloat64, bytes, 1).exponent, fixed_bits(1)};
    std::int64_t whole = 0, rest = 0;
    to_fixed(DType::kFloat64, bytes, 1, grid, &whole, &rest);
    double back = 5;
    from_fixed(DType::kFloat64, &whole, &rest, 1, grid, 1, reinterpret_cast<std::byte*>(&back));
    EXPECT_EQ(back, x);
  }
}

TEST(FixedPoint, HasRoomForEveryRank) {
  EXPECT_EQ(fixed_bits(1), 63);
  EXPECT_EQ(fixed_bits(2), 62);
  EXPECT_EQ(fixed_bits(3), 61);
  EXPECT_EQ(fixed_bits(4), 61);
  EXPECT_EQ(fixed_bits(5), 60);
  EXPECT_EQ(fixed_bits(1024), 53);
}

}  // namespace fixed_point_test
}  // namespace lockstep::engine
