// SPDX-License-Identifier: MIT
#include "engine/cpu/checksum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/checksum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

#include "engine/ops/definitions.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns the sum over whole vectors of words from word `i` on, and advances `i` past them.
template <class D>
HWY_INLINE std::uint64_t sum_of_vectors(D d, const std::byte* data, std::size_t words,
                                        std::size_t offset, std::size_t& i) {
  constexpr std::size_t kWords = hn::MaxLanes(D());
  if constexpr (kWords == 1) {
    return 0;
  } else {
    const hn::Repartition<std::uint8_t, D> bytes;
    const hn::RepartitionToWide<D> wide;
    // A product of all lanes at once keeps only half of its bits, so even and odd lanes are
    // separate.
    const auto odd_lanes = [&](auto x) {
      return hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x)));
    };
    alignas(64) std::uint32_t first[kWords];
    for (std::size_t lane = 0; lane < kWords; ++lane)
      first[lane] = checksum_factor(offset + i + lane);
    auto even = hn::Load(d, first), odd = odd_lanes(even);
    const auto step = hn::Set(d, checksum_factor(kWords) - checksum_factor(0));
    auto even_sums = hn::Zero(wide), odd_sums = even_sums;
    for (; i + kWords <= words; i += kWords) {
      const auto x =
          hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(data + i * 4)));
      even_sums = hn::Add(even_sums, hn::MulEven(x, even));
      odd_sums = hn::Add(odd_sums, hn::MulEven(odd_lanes(x), odd));
      even = hn::Add(even, step);
      odd = hn::Add(odd, step);
    }
    // Avoids SumOfLanes: with some compilers it adds the lanes as signed numbers, which must not
    // wrap.
    alignas(64) std::uint64_t sums[kWords / 2];
    hn::Store(hn::Add(even_sums, odd_sums), wide, sums);
    return std::accumulate(std::begin(sums), std::end(sums), std::uint64_t(0));
  }
}

std::uint64_t Checksum(const std::byte* data, std::size_t bytes, std::size_t offset) {
  std::size_t i = 0;
  std::uint64_t sum =
      sum_of_vectors(hn::CappedTag<std::uint32_t, 16>(), data, bytes / 4, offset, i);
  for (; i * 4 < bytes; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + i * 4, std::min<std::size_t>(4, bytes - i * 4));
    sum += checksum_word(word, offset + i);
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(Checksum);

std::uint64_t checksum(const std::byte* data, std::size_t bytes, std::size_t offset) {
  return HWY_DYNAMIC_DISPATCH(Checksum)(data, bytes, offset);
}

}  // namespace lockstep::engine::cpu
#endif
