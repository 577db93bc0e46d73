// SPDX-License-Identifier: MIT
#include "collectives/cost/reason.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collectives/cost/planner.h"
#include "engine/base/quantity.h"

namespace lockstep::collectives {
namespace {

// An all-reduce needs these, and takes at least as long as it needs each of them.
enum Need { kWire, kPart, kRounds, kWork };

double seconds(const Price& price, Need need) {
  switch (need) {
    case kWire:
      return price.wire_seconds;
    case kPart:
      return price.part_seconds;
    case kRounds:
      return price.round_seconds;
    case kWork:
      return price.work_seconds;
  }
  return 0;
}

// Returns the needs that can explain a time. If a rank's device does the work, the rank's thread
// only waits for it.
std::vector<Need> needs(const Price& price) {
  if (price.part <= HostPart::kMemory || price.wire_bytes > 0)
    return {kWire, kPart, kRounds, kWork};
  return {kWire, kPart, kRounds};
}

std::string_view part_name(HostPart part) {
  static constexpr std::array<std::string_view, 5> kNames{"the processors", "memory",
                                                          "device memory", "the port of a device",
                                                          "a link between two devices"};
  return kNames[std::size_t(part)];
}

// Factor by which a need must exceed an earlier one to replace it. Smaller differences are noise.
constexpr double kClearly = 1.02;
// Part of a time from which on a resource is almost never idle.
constexpr double kHardlyPauses = 0.85;

// Part of the bytes below which they explain savings of other needs.
constexpr double kFewer = 0.9;

// Returns two times as text, with more digits if they would look equal.
std::pair<std::string, std::string> two_times(double a, double b) {
  const std::string first = time_text(a), second = time_text(b);
  if (first != second || a == b) return {first, second};
  const bool micro = std::max(a, b) < 1e-3;
  const double unit = micro ? 1e-6 : 1e-3;
  return {fmt::format("{:.5g} {}", a / unit, micro ? "us" : "ms"),
          fmt::format("{:.5g} {}", b / unit, micro ? "us" : "ms")};
}

// Compares the chosen all-reduce with another one, in words.
class Comparison {
 public:
  Comparison(std::string_view name, const Price& mine, std::string_view other, const Price& than)
      : name_(name), other_(other), mine_(mine), than_(than) {}

  double saved(Need need) const { return seconds(than_, need) - seconds(mine_, need); }

  // Returns a text such as "direct sends 44 KiB per host, ring 64 KiB".
  std::string less(Need need) const {
    if (need == kWire) return sends();
    // There are as many rounds, but fewer of them are messages.
    if (need == kRounds && std::abs(mine_.rounds - than_.rounds) < 0.5)
      return times("{}'s communication rounds take {}, {}'s {}", need);
    if (need == kRounds)
      return fmt::format(
          "{} needs {}, {} {:.0f}", name_,
          engine::count_text(std::max<std::uint64_t>(1, std::uint64_t(mine_.rounds + 0.5)),
                             "communication round"),
          other_, than_.rounds);
    const bool processors = need == kPart && mine_.part == HostPart::kProcessors;
    if (processors || need == kWork) {
      const double sent = mine_.wire_bytes / than_.wire_bytes;
      const double moved = mine_.memory_bytes / than_.memory_bytes;
      if (sent < kFewer && !(moved < sent)) return sends();
      if (moved < kFewer) return moves();
      return times(processors ? "{} keeps the processors busy for {}, {} for {}"
                              : "{} keeps its busiest rank busy for {}, {} for {}",
                   need);
    }
    if (mine_.part == HostPart::kMemory && than_.part == HostPart::kMemory &&
        mine_.memory_bytes < kFewer * than_.memory_bytes)
      return moves();
    const auto [mine, than] = two_times(seconds(mine_, need), seconds(than_, need));
    if (mine_.part == than_.part)
      return fmt::format("{} keeps {} busy for {}, {} for {}", name_, part_name(mine_.part), mine,
                         other_, than);
    return fmt::format("{} is limited by {} ({}), {} by {} ({})", name_, part_name(mine_.part),
                       mine, other_, part_name(than_.part), than);
  }

  // Returns a text such as "the wire limits both: direct leaves it idle for 0.1 ms, ring for
  // 1.2 ms".
  std::string idle(Need need) const {
    const auto rest = [&](const Price& price) {
      return std::max(0.0, price.seconds - seconds(price, need));
    };
    const auto [mine, than] = two_times(rest(mine_), rest(than_));
    if (need == kRounds)
      return fmt::format("besides its communication rounds, {} takes {}, {} {}", name_, mine,
                         other_, than);
    const auto is_limit = [&](const Price& price) {
      return seconds(price, need) > kHardlyPauses * price.seconds;
    };
    if (need == kWork || !is_limit(mine_))
      return fmt::format("{} waits for {}, {} for {}", name_, mine, other_, than);
    const bool processors = need == kPart && mine_.part == HostPart::kProcessors;
    return fmt::format("{} limit{} {}: {} leaves {} idle for {}, {} for {}",
                       need == kWire ? "the wire" : part_name(mine_.part), processors ? "" : "s",
                       is_limit(than_) ? "both" : name_, name_, processors ? "them" : "it", mine,
                       other_, than);
  }

 private:
  // Formats both names, each with its time of the need.
  std::string times(fmt::string_view text, Need need) const {
    const auto [mine, than] = two_times(seconds(mine_, need), seconds(than_, need));
    return fmt::format(fmt::runtime(text), name_, mine, other_, than);
  }
  std::string sends() const { return compared("sends", "per host", &Price::wire_bytes); }
  std::string moves() const { return compared("moves", "through memory", &Price::memory_bytes); }
  std::string compared(const char* verb, const char* where, double Price::*bytes) const {
    return fmt::format("{} {} {} {}, {} {}", name_, verb, engine::bytes_text(mine_.*bytes), where,
                       other_, engine::bytes_text(than_.*bytes));
  }

  std::string_view name_, other_;
  const Price &mine_, &than_;
};

double seconds_by_costs(const Price& price) {
  return price.seconds / price.trial;
}

// Returns the price with needs that take the time of the trials: each its part, as costs predict.
Price scaled(Price price) {
  for (double* const need :
       {&price.wire_seconds, &price.part_seconds, &price.round_seconds, &price.work_seconds})
    *need *= price.trial;
  price.trial = 1;
  return price;
}

}  // namespace

// If trials reverse what the costs of messages and bytes predict, the trials are the reason.
//
// A need that is saved explains as much as its part of the other's time: if the wire is hardly
// used, fewer bytes on it are not the reason. The saving must be at least half of the difference.
// If both keep the same resource busy nearly all the time, that is the bottleneck, and how well it
// is used is the reason.
std::string reason(std::string_view name, const Price& mine, std::string_view other,
                   const Price& than) {
  if (mine.trial != 1 || than.trial != 1) {
    if (seconds_by_costs(mine) < seconds_by_costs(than))
      return reason(name, scaled(mine), other, scaled(than));
    const auto [first, second] = two_times(mine.seconds, than.seconds);
    return fmt::format("measured on these ranks: {} takes {}, {} {}", name, first, other, second);
  }
  const Comparison comparison(name, mine, other, than);
  const double gain = than.seconds - mine.seconds;
  double most = 0;
  Need reason = kWire, limit = kWire;
  for (const Need need : needs(mine)) {
    const double saved = comparison.saved(need);
    const double explains = std::min(saved, gain) * seconds(than, need);
    if (saved >= gain / 2 && explains > kClearly * most) most = explains, reason = need;
    if (seconds(mine, need) > kClearly * seconds(mine, limit)) limit = need;
  }
  const bool the_same = limit != kRounds && comparison.saved(limit) < gain / 2 &&
                        seconds(mine, limit) > kHardlyPauses * mine.seconds &&
                        seconds(than, limit) > kHardlyPauses * than.seconds;
  return most > 0 && !the_same ? comparison.less(reason) : comparison.idle(limit);
}

}  // namespace lockstep::collectives
