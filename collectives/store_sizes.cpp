// SPDX-License-Identifier: MIT
#include "collectives/store_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/machine.h"
#include "collectives/size_rules.h"

namespace lockstep::collectives {
namespace {

// Times that differ by less tell nothing.
constexpr double kClear = 1.04;
// Algorithms cut what they send round into pieces of 256 KiB, which the next step reads: a piece is
// not a result that lies around.
constexpr double kLeastResults = 512 << 10;
constexpr double kLeastTouched = 4 << 20;  // below that everything fits

}  // namespace

StoreSizes store_sizes(const HostCosts& costs) {
  StoreSizes sizes;
  if (costs.stream_touched > 0 && costs.stream_results > 0)
    return {std::size_t(costs.stream_results), std::size_t(costs.stream_touched), true};
  if (const std::size_t cache = last_cache(); cache > 0) sizes.touched = cache;
  return sizes;
}

std::string sentence(const StoreSizes& sizes) {
  return fmt::format("results of {} and more, and updates that touch more than {} ({})",
                     size_text(sizes.results), size_text(sizes.touched),
                     sizes.measured ? "measured" : "by the last cache, not measured");
}

void decide_stores(HostCosts& costs, std::vector<StoreTimes> times) {
  std::ranges::sort(times, {}, &StoreTimes::touched);
  const StoreTimes *slower = nullptr, *faster = nullptr;
  for (const StoreTimes& at : times) {
    if (at.streamed > at.plain * kClear) slower = &at, faster = nullptr;
    if (at.plain > at.streamed * kClear && faster == nullptr) faster = &at;
  }
  if (faster == nullptr) return;
  const auto between = [&](double StoreTimes::*bytes) {
    return slower == nullptr ? faster->*bytes : std::sqrt(slower->*bytes * (faster->*bytes));
  };
  costs.stream_touched = std::max(kLeastTouched, std::floor(between(&StoreTimes::touched)));
  costs.stream_results = std::max(kLeastResults, std::floor(between(&StoreTimes::results)));
}

}  // namespace lockstep::collectives
