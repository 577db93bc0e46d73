// SPDX-License-Identifier: MIT
#include "collectives/reason.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "collectives/planner.h"

namespace lockstep::collectives {
namespace {

std::string amount(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} bytes", bytes);
  if (bytes < double(1 << 20)) return fmt::format("{:.4g} KiB", bytes / 1024);
  if (bytes < double(1 << 30)) return fmt::format("{:.4g} MiB", bytes / double(1 << 20));
  return fmt::format("{:.4g} GiB", bytes / double(1 << 30));
}

// What an all-reduce needs; it takes at least as long as it needs any of them.
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

// The thread of a rank whose device is at work has nothing to do but wait for it.
std::vector<Need> needs(const Price& price) {
  if (price.part <= HostPart::kMemory || price.wire_bytes > 0)
    return {kWire, kPart, kRounds, kWork};
  return {kWire, kPart, kRounds};
}

std::string_view part_name(HostPart part) {
  static constexpr std::array<std::string_view, 5> kNames{
      "the processors of a host", "the memory of a host", "the memory of a device",
      "the port of a device", "a link between two devices"};
  return kNames[std::size_t(part)];
}

std::string in_turn(double rounds) {
  if (rounds < 1.5) return "1 signal or message";
  return fmt::format("{:.0f} signals and messages one after the other", rounds);
}

// So much more is no matter of the last digits: the first in the order of the needs stays.
constexpr double kClearly = 1.02;
// Of a time, where something has hardly a pause.
constexpr double kHardlyPauses = 0.85;

// So many fewer bytes are the reason of other things.
constexpr double kFewer = 0.9;

// Of what is chosen and the other, in words.
class Comparison {
 public:
  Comparison(const Price& mine, const Price& than, std::string_view other)
      : mine_(mine), than_(than), other_(other) {}

  double saved(Need need) const { return seconds(than_, need) - seconds(mine_, need); }

  // "it sends 44 KiB from a host (15.6 us of the wire), ring 64 KiB (22.8 us)".
  std::string less(Need need) const {
    const std::string take = time_text(seconds(mine_, need));
    const std::string takes = time_text(seconds(than_, need));
    if (need == kWire)
      return fmt::format("{} ({} of the wire), {} {} ({})", sends(), take, other_,
                         amount(than_.wire_bytes), takes);
    // As many, of which fewer are messages.
    if (need == kRounds && std::abs(mine_.rounds - than_.rounds) < 0.5)
      return fmt::format("its {} take {}, those of {} {}", in_turn(mine_.rounds), take, other_,
                         takes);
    if (need == kRounds)
      return fmt::format("it has {} ({}), {} {:.0f} ({})", in_turn(mine_.rounds), take, other_,
                         than_.rounds, takes);
    const bool processors = need == kPart && mine_.part == HostPart::kProcessors;
    if (processors || need == kWork) {
      const std::string works = processors ? "its processors work" : "its busiest rank works";
      const std::string bytes = fewer_bytes();
      if (!bytes.empty())
        return fmt::format("{}: {} for {} instead of {}", bytes, works, take, takes);
      return fmt::format("{} for {}, {} of {} for {}", works, take, processors ? "those" : "that",
                         other_, takes);
    }
    if (mine_.part == HostPart::kMemory && than_.part == HostPart::kMemory &&
        mine_.memory_bytes < kFewer * than_.memory_bytes)
      return fmt::format("{} ({}), {} {} ({})", moves(), take, other_, amount(than_.memory_bytes),
                         takes);
    if (mine_.part == than_.part)
      return fmt::format("it needs {} for {}, {} for {}", part_name(mine_.part), take, other_,
                         takes);
    return fmt::format("it needs {} for {}, {} {} for {}", part_name(mine_.part), take, other_,
                       part_name(than_.part), takes);
  }

  // "the wire is the limit: it is idle for 0.1 ms of 5.3 ms, with ring for 1.2 ms of 6.4 ms".
  std::string idle(Need need) const {
    const auto rest = [&](const Price& price) {
      return time_text(std::max(0.0, price.seconds - seconds(price, need)));
    };
    if (need == kRounds)
      return fmt::format("{} take {}: all else takes {} more, with {} {}", in_turn(mine_.rounds),
                         time_text(mine_.round_seconds), rest(mine_), other_, rest(than_));
    const bool many = need == kPart && mine_.part == HostPart::kProcessors;
    const std::string_view what = need == kWire   ? "the wire"
                                  : need == kPart ? part_name(mine_.part)
                                                  : "the busiest rank";
    const bool limit = seconds(mine_, need) > kHardlyPauses * mine_.seconds;
    return fmt::format("{} {} {}: {} idle for {} of {}, with {} for {} of {}", what,
                       many ? "are" : "is", limit ? "the limit" : "needed most",
                       many ? "they are" : "it is", rest(mine_), time_text(mine_.seconds), other_,
                       rest(than_), time_text(than_.seconds));
  }

 private:
  // What makes work, if there is so much less of it; else empty.
  std::string fewer_bytes() const {
    const double sent = mine_.wire_bytes / than_.wire_bytes;
    const double moved = mine_.memory_bytes / than_.memory_bytes;
    if (sent < kFewer && !(moved < sent))
      return fmt::format("{}, {} {}", sends(), other_, amount(than_.wire_bytes));
    if (moved < kFewer)
      return fmt::format("{}, {} {}", moves(), other_, amount(than_.memory_bytes));
    return {};
  }
  std::string sends() const { return "it sends " + amount(mine_.wire_bytes) + " from a host"; }
  std::string moves() const {
    return "it moves " + amount(mine_.memory_bytes) + " through the memory of a host";
  }

  const Price &mine_, &than_;
  std::string_view other_;
};

// As if nothing had been tried.
Price by_costs(Price price) {
  price.seconds /= price.trial;
  price.trial = 1;
  return price;
}

}  // namespace

// Where trials turn round what the costs of messages and bytes say, they are the reason.
//
// What is needed less explains as much as it is of the other's time: where the wire is hardly used,
// fewer bytes on it are not the reason. It must be half of the difference at least. Where both are
// busy with the same nearly all the time, that is the limit, and how well it is used the reason.
std::string reason(const Price& mine, const Price& than, std::string_view name) {
  if (mine.trial != 1 || than.trial != 1) {
    const Price a = by_costs(mine), b = by_costs(than);
    if (a.seconds < b.seconds) return reason(a, b, name);
    return fmt::format(
        "both were timed on these ranks: it takes {}, {} {} (by the costs of their steps {} and "
        "{})",
        time_text(mine.seconds), name, time_text(than.seconds), time_text(a.seconds),
        time_text(b.seconds));
  }
  const Comparison comparison(mine, than, name);
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
