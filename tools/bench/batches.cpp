// SPDX-License-Identifier: MIT
#include "tools/bench/batches.h"

#include <algorithm>
#include <cmath>

namespace lockstep::tools::bench {
namespace {

constexpr int kFirstCalls = 3;

}  // namespace

void time_batches(const std::vector<Batches*>& all, int turns, double batch_seconds) {
  for (Batches* one : all) {
    one->seconds(std::min(kFirstCalls, one->most_calls));
    const double once = one->seconds(std::min(kFirstCalls, one->most_calls));
    const double calls = std::ceil(batch_seconds / std::max(once, 1e-9));
    one->calls = int(std::clamp(calls, 1.0, double(one->most_calls)));
  }
  for (int turn = 0; turn < turns; ++turn)
    for (Batches* one : all) one->samples.push_back(one->seconds(one->calls));
}

}  // namespace lockstep::tools::bench
