// SPDX-License-Identifier: MIT
#include "collectives/cost/memory_access.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "collectives/cost/size_rules.h"
#include "collectives/topology/machine.h"

namespace lockstep::collectives {
namespace {

// Smallest ratio of times that counts as a difference.
constexpr double kClear = 1.04;
// Least size of results for non-temporal stores. Algorithms cut messages into pieces of 256 KiB,
// which the next step reads, so these should stay in the caches.
constexpr double kLeastResults = 512 << 10;
constexpr double kLeastTouched = 4 << 20;  // below it everything fits in caches

}  // namespace

MemoryAccess memory_access(const HostCosts& costs) {
  MemoryAccess access;
  access.read_ahead = costs.read_ahead;
  access.measured = costs.stream_touched > 0 && costs.stream_results > 0;
  if (access.measured) {
    access.results = std::size_t(costs.stream_results);
    access.touched = std::size_t(costs.stream_touched);
  } else if (const std::size_t cache = last_cache(); cache > 0) {
    access.touched = cache;
  }
  return access;
}

std::string sentence(const MemoryAccess& access) {
  return fmt::format(
      "for results from {} on, and for updates that touch more than {} ({}); sums in place "
      "prefetch "
      "lines to {} them",
      size_text(access.results), size_text(access.touched),
      access.measured ? "measured" : "the size of the last cache, not measured",
      access.read_ahead ? "read" : "write");
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

bool better_read_ahead(double written, double read) {
  return read * kClear < written;
}

}  // namespace lockstep::collectives
