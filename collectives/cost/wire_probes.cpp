// SPDX-License-Identifier: MIT
#include "collectives/cost/wire_probes.h"

#include <algorithm>
#include <numeric>

namespace lockstep::collectives {
namespace {

using Kind = Probe::Kind;

constexpr double kSmallestBulk = 2 << 10, kUsualBulk = 32 << 10, kLargestBulk = 8 << 20;
constexpr double kGrowth = 4;
constexpr int kMostBulk = 6, kLeastLargest = 2;  // repetitions, after the first
// Parts of the time: for all messages; for the next bytes, once; for repeated bytes.
constexpr double kMessages = 0.25, kOnce = 0.3, kAgain = 0.5;
// Messages, and the most repetitions of each.
constexpr Probe kSmall[] = {{Kind::kMessages, 1, 24},
                            {Kind::kMessages, 6, 15},
                            {Kind::kAtOnce, 8, 12},
                            {Kind::kAtOnce, 32, 12}};
constexpr double kFewBytes = 32 * 64;  // sent by the last of them

double least_seconds(const Sample& sample) {
  double least = 0;
  for (const auto& ranks : sample.seconds) {
    const double slowest = *std::max_element(ranks.begin(), ranks.end());
    if (&ranks == &sample.seconds.front() || slowest < least) least = slowest;
  }
  return least;
}

// Returns how often something of `each` seconds is done in `seconds`.
int times(double seconds, double each, int most) {
  return seconds >= each * most ? most : std::max(1, int(seconds / each));
}

}  // namespace

// Holds what the samples tell: times of a barrier, of one message, of many at once, and of bytes,
// ascending, with their repetitions. 0: not measured yet.
struct WireProbes::Seen {
  struct Bulk {
    double bytes = 0, seconds = 0;
    std::size_t repetitions = 0;
  };
  double turn = 0, way = 0, many = 0;
  std::vector<Bulk> bulks = {};

  // Returns the predicted time of `times` as many bytes as took `seconds`. Latency does not grow.
  double after(double seconds, double times) const {
    return std::max(seconds, way + times * std::max(0.0, seconds - way));
  }
};

WireProbes::WireProbes(std::vector<int> host, double seconds)
    : host_(std::move(host)), all_(host_.size()), seconds_(seconds) {
  std::iota(all_.begin(), all_.end(), 0);
}

WireProbes::Seen WireProbes::seen(const std::vector<Sample>& samples) const {
  Seen seen;
  for (const Sample& sample : samples) {
    if (sample.seconds.empty()) continue;
    const Probe& probe = sample.probe;
    if (probe.kind == Kind::kTurn) seen.turn = least_seconds(sample);
    if (probe.kind == Kind::kMessages && probe.size == 1) seen.way = least_seconds(sample);
    if (probe.kind == Kind::kAtOnce && probe.size == kSmall[3].size)
      seen.many = usual_seconds(sample, all_);
    if (probe.kind == Kind::kBulk)
      seen.bulks.push_back({probe.size, usual_seconds(sample, all_), sample.seconds.size()});
  }
  std::sort(seen.bulks.begin(), seen.bulks.end(),
            [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return seen;
}

std::optional<ProbeGroup> WireProbes::next(const std::vector<Sample>& samples) const {
  const Seen seen = this->seen(samples);
  if (seen.turn == 0)
    return wire_group("the first messages", host_, {{Kind::kTurn, 1, 3}, {Kind::kMessages, 1, 2}});
  if (seen.many == 0) {
    std::vector<Probe> probes;
    for (Probe probe : kSmall) {
      const double each = seen.turn + seen.way * (probe.kind == Kind::kMessages ? probe.size : 1);
      probe.repetitions = times(seconds_ * kMessages / std::size(kSmall), each, probe.repetitions);
      probes.push_back(probe);
    }
    return wire_group("messages", host_, std::move(probes));
  }
  const bool repeated = std::any_of(seen.bulks.begin(), seen.bulks.end(),
                                    [](const auto& bulk) { return bulk.repetitions > 1; });
  if (repeated) return std::nullopt;
  if (auto group = grown(seen)) return group;
  return again(seen);
}

// Returns the next size, if it will end in time.
std::optional<ProbeGroup> WireProbes::grown(const Seen& seen) const {
  const double once = seconds_ * kOnce;
  double bytes = kUsualBulk;
  if (!seen.bulks.empty()) {
    bytes = seen.bulks.back().bytes * kGrowth;
    if (bytes > kLargestBulk || seen.after(seen.bulks.back().seconds, kGrowth) > once) return {};
  } else {
    while (bytes > kSmallestBulk && seen.after(seen.many, bytes / kFewBytes) > once)
      bytes /= kGrowth;
  }
  return wire_group("bytes between hosts", host_, {{Kind::kBulk, bytes, 1}});
}

// Repeats the bytes. Half of the time is for the largest size, which tells most of the wire. It
// runs three times in all, unless one takes too long, so that one or two disturbed ones do not
// count.
ProbeGroup WireProbes::again(const Seen& seen) const {
  std::vector<Probe> probes;
  const double others = double(std::max<std::size_t>(1, seen.bulks.size() - 1));
  for (const auto& bulk : seen.bulks) {
    const bool last = &bulk == &seen.bulks.back();
    const double share = seconds_ * kAgain / 2 / (last ? 1 : others);
    const int least = last && bulk.seconds <= seconds_ * kOnce ? kLeastLargest : 1;
    probes.push_back({Kind::kBulk, bulk.bytes,
                      std::max(least, times(share, seen.turn + bulk.seconds, kMostBulk))});
  }
  return wire_group("bytes between hosts again", host_, std::move(probes));
}

ProbeGroup WireProbes::largest() const {
  return wire_group("the largest", host_, {{Kind::kTurn, 1, 1}, {Kind::kBulk, kLargestBulk, 1}});
}

}  // namespace lockstep::collectives
