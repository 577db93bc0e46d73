// SPDX-License-Identifier: MIT
#include "engine/train/job_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/base/median.h"
#include "engine/report/trace.h"

namespace lockstep::engine {
namespace {

constexpr std::size_t kLooks = 9;  // clock samples

double clock_nanoseconds() {
  const auto since = Clock::now().time_since_epoch();
  return double(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// Holds the times that each replica sends to all others.
struct Looks {
  std::array<double, kLooks> clock{};  // nanoseconds after each barrier
  double first = 0;                    // begin of the first span; infinity: none
  double host = 0;
};
static_assert(sizeof(Looks) <= Strategy::kGather * sizeof(double));

}  // namespace

std::string chrome_trace(Strategy& strategy, const Profile& profile) {
  const Membership me = strategy.membership();
  std::vector<std::string> mine(std::size_t(me.local));
  strategy.run([&](Replica& replica) {
    Looks looks;
    const auto timeline = profile.timelines().find(replica.rank);
    const bool recorded = timeline != profile.timelines().end();
    looks.first = std::numeric_limits<double>::infinity();
    if (recorded) {
      const std::vector<Timeline::Span> spans = timeline->second->spans();
      if (!spans.empty()) looks.first = double(spans.front().begin);
    }
    looks.host = me.host;
    for (double& clock : looks.clock) {
      strategy.gather(replica, {}, "aligning clocks");
      clock = clock_nanoseconds();
    }
    std::vector<double> numbers(looks.clock.begin(), looks.clock.end());
    numbers.insert(numbers.end(), {looks.first, looks.host});
    const std::vector<double> all = strategy.gather(replica, numbers, "aligning clocks");
    invariant(all.size() == numbers.size() * std::size_t(me.size), "a gather has all ranks");
    auto of = [&](int rank) { return all.data() + std::size_t(rank) * numbers.size(); };
    auto shift_of = [&](int rank) -> std::int64_t {
      if (of(rank)[kLooks + 1] == of(0)[kLooks + 1]) return 0;
      std::vector<std::int64_t> differences;
      for (std::size_t k = 0; k < kLooks; ++k) {
        differences.push_back(std::int64_t(of(0)[k]) - std::int64_t(of(rank)[k]));
      }
      return median(std::move(differences));
    };
    std::int64_t first = INT64_MAX;
    for (int rank = 0; rank < me.size; ++rank) {
      if (!std::isfinite(of(rank)[kLooks])) continue;
      first = std::min(first, std::int64_t(of(rank)[kLooks]) + shift_of(rank));
    }
    if (!recorded || first == INT64_MAX) return;
    mine[std::size_t(replica.rank - me.rank)] = trace_events(
        *timeline->second, shift_of(replica.rank) - first,
        fmt::format("rank {}, process {} on host {}", replica.rank, getpid(), me.host));
  });
  std::erase(mine, "");
  const std::vector<std::string> all =
      strategy.collect(fmt::format("{}", fmt::join(mine, ",\n")), "the trace");
  return me.chief ? trace_document(all) : "";
}

}  // namespace lockstep::engine
