// SPDX-License-Identifier: MIT
#include "engine/cpu/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "engine/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

// Runs `rounds` of 12 independent sums and returns the number of operations. `result` keeps the
// compiler from removing them.
double MultiplyAndAdd(std::size_t rounds, float* result) {
  constexpr std::size_t kSums = 12;
  Vector sums[kSums];
  HWY_UNROLL(12)
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = all(float(i));
  const Vector a = all(0.999f), b = all(1e-3f);
  for (std::size_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(12)
    for (std::size_t i = 0; i < kSums; ++i) sums[i] = hn::MulAdd(sums[i], a, b);
  }
  Vector total = zero();
  HWY_UNROLL(12)
  for (std::size_t i = 0; i < kSums; ++i) total = hn::Add(total, sums[i]);
  *result = hn::GetLane(total);
  return double(rounds * kSums * kWidth * 2);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(MultiplyAndAdd);

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Peak measure_peak() {
  constexpr int kTries = 7;  // the fastest counts; other load only slows down
  Peak peak;
  volatile float kept = 0;
  for (int i = 0; i < kTries; ++i) {
    float result = 0;
    const auto begin = Clock::now();
    const double operations = HWY_DYNAMIC_DISPATCH(MultiplyAndAdd)(200'000, &result);
    peak.flops = std::max(peak.flops, operations / seconds_since(begin));
    kept = result;
  }
  const std::size_t size = std::size_t(64) << 20;
  std::vector<char> from(size, 1), to(size, 2);
  for (int i = 0; i < kTries; ++i) {
    const auto begin = Clock::now();
    std::memcpy(to.data(), from.data(), size);
    peak.bytes = std::max(peak.bytes, 2 * double(size) / seconds_since(begin));
    kept = float(to[std::size_t(i)]);
  }
  static_cast<void>(kept);
  return peak;
}

}  // namespace lockstep::engine::cpu
#endif
