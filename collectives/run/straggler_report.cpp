// SPDX-License-Identifier: MIT
#include "collectives/run/straggler_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace lockstep::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Polls of a stuck step that read no clock: most steps move within them.
constexpr int kFreeLooks = 32;
// Most time between two polls of a stuck step that counts as waiting.
constexpr nanoseconds kAttention = milliseconds(100);
// Wait that may be one for a lost rank: others may want to know that this rank is not lost. Waits
// of ranks that come together are over long before.
constexpr nanoseconds kLong = milliseconds(2);

// Consecutive ranks that become one word in a list, and most words of a list.
constexpr std::size_t kManyInARow = 5, kMostInList = 16;

// Returns "0 2 4 to 511": five or more in a row are shortened. Returns "0 2 4 ... and 7 more" if
// all would be too long.
std::string ranks_text(std::vector<int> ranks) {
  if (ranks.empty()) return "none";
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  std::size_t words = 0;
  for (std::size_t i = 0; i < ranks.size(); ++words) {
    if (words == kMostInList) return fmt::format("{} ... and {} more", text, ranks.size() - i);
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    const bool shortened = end - i >= kManyInARow;
    if (!text.empty()) text += " ";
    text +=
        shortened ? fmt::format("{} to {}", ranks[i], ranks[end - 1]) : std::to_string(ranks[i]);
    i = shortened ? end : i + 1;
  }
  return text;
}

// Returns "rank 1" or "ranks 1 2", since a bare number would read as a count.
std::string named(const std::vector<int>& ranks) {
  if (ranks.empty()) return "none";
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranks_text(ranks));
}

// Returns "1500 ms" or "60 s".
std::string waited_text(milliseconds waited) {
  const double seconds = double(waited.count()) / 1000;
  return seconds < 2     ? fmt::format("{} ms", waited.count())
         : seconds < 100 ? fmt::format("{:.3g} s", seconds)
                         : fmt::format("{:.0f} s", seconds);
}

}  // namespace

void StragglerReport::set_purpose(int plan, std::string_view purpose) {
  std::scoped_lock lock(mutex_);
  purposes_[std::size_t(plan)] = purpose;
}

std::string StragglerReport::purpose_of(int plan) const {
  std::scoped_lock lock(mutex_);
  const std::string_view purpose = purposes_[std::size_t(plan)];
  return purpose.empty() ? "" : fmt::format("{}: ", purpose);
}

// Returns the ranks that the lane's next step needs and that have not arrived so far.
std::vector<int> StragglerReport::missing(int plan, int lane) const {
  const PlanState& state = plans_[std::size_t(plan)];
  const Lane& steps = (*state.mine)[std::size_t(lane)];
  const std::size_t at = state.cursors[std::size_t(lane)].step;
  if (at == steps.size()) return {};
  const Step& step = steps[at];
  std::vector<int> ranks;
  if (step.action == Action::kWait) ranks.push_back(steps[std::size_t(step.post)].peer);
  for (const int rank : step.ranks)
    if (!state.arrived(team_, plan, step, rank)) ranks.push_back(rank);
  return ranks;
}

// Returns "; arrived: ranks 0 2; elsewhere: rank 3", or an empty text if no rank is missing. Ranks
// have arrived if they have come to the lane's step or are known to wait in the plan. Ranks are
// elsewhere if they wait in another plan.
std::string StragglerReport::arrivals(int plan, int lane, const std::vector<int>& missing) const {
  if (missing.empty()) return {};
  const auto now = engine::Clock::now();
  const PlanState& state = plans_[std::size_t(plan)];
  const Lane& steps = (*state.mine)[std::size_t(lane)];
  std::vector<int> here = liveness_.waiting(plan, now), elsewhere;
  for (const int rank : steps[state.cursors[std::size_t(lane)].step].ranks) here.push_back(rank);
  const auto directly = this->missing(plan, lane);
  here.insert(here.end(), directly.begin(), directly.end());
  std::sort(here.begin(), here.end());
  here.erase(std::unique(here.begin(), here.end()), here.end());
  std::erase_if(here, [&](int rank) {
    const auto has = [rank](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    if (has(missing)) return true;
    if (!has(directly) || liveness_.waits_in(plan, rank, now)) return false;
    if (liveness_.waits(rank, now)) elsewhere.push_back(rank);
    return true;
  });
  return fmt::format("; arrived: {}{}", named(here),
                     elsewhere.empty() ? "" : "; elsewhere: " + named(elsewhere));
}

// Stops the team since a lane has waited too long, from `since` on, and names the silent ranks.
// Returns false if there are none to name yet.
bool StragglerReport::stop_late_lane(int plan, int lane, milliseconds waited, Time since,
                                     Time now) {
  const std::vector<int> silent = liveness_.silent(plan, missing(plan, lane), since, now);
  if (silent.empty()) return false;
  team_.stop({engine::Code::kTimeout,
              fmt::format("{} {} missing: {}{}: rank {} waited {}{}", named(silent),
                          silent.size() == 1 ? "is" : "are", purpose_of(plan),
                          title(plans_[std::size_t(plan)].stage->plan), rank_, waited_text(waited),
                          arrivals(plan, lane, silent)),
              silent, true});
  return true;
}

// Does the same for all lanes of a plan that are stuck. Returns false if none is.
bool StragglerReport::stop_late_plan(int plan, milliseconds waited, Time since) {
  bool stuck = false;
  const std::vector<Cursor>& cursors = plans_[std::size_t(plan)].cursors;
  for (std::size_t lane = 0; lane < cursors.size(); ++lane) {
    if (cursors[lane].looks == 0) continue;
    stuck = true;
    if (stop_late_lane(plan, int(lane), waited, since, engine::Clock::now())) return true;
  }
  return stuck;
}

void StragglerReport::stop_late(int plan, milliseconds waited, Time since) {
  const PlanState& state = plans_[std::size_t(plan)];
  const std::uint64_t execution = state.completed.load(std::memory_order_relaxed);
  if (stop_late_plan(plan, waited, since)) return;
  for (const int earlier : state.stage->after) {
    const PlanState& before = plans_[std::size_t(earlier)];
    if (before.completed.load(std::memory_order_relaxed) > execution) continue;
    if (before.requested.load() <= execution)
      return team_.stop({engine::Code::kTimeout,
                         fmt::format("{}: rank {} waited {}; it comes after {}, which rank {} "
                                     "has not started",
                                     title(state.stage->plan), rank_, waited_text(waited),
                                     before.stage->plan.name, rank_)});
    if (stop_late_plan(earlier, waited, since)) return;
  }
  team_.stop(
      {engine::Code::kTimeout, fmt::format("{}: rank {} waited {}, and it is still at work",
                                           title(state.stage->plan), rank_, waited_text(waited))});
}

std::string StragglerReport::waiting_for(int plan, const std::vector<int>& lost) const {
  const Stage& stage = *plans_[std::size_t(plan)].stage;
  std::string who;
  const auto look_at = [&](int index) {
    const std::size_t lanes = plans_[std::size_t(index)].cursors.size();
    for (std::size_t lane = 0; who.empty() && lane < lanes; ++lane) {
      const std::vector<int> directly = missing(index, int(lane));
      if (directly.empty()) continue;
      const std::vector<int>& missing = lost.empty() ? directly : lost;
      who = fmt::format("{}; missing: {}", arrivals(index, int(lane), missing), named(missing));
    }
  };
  look_at(plan);
  for (const int earlier : stage.after) look_at(earlier);
  if (who.empty()) who = fmt::format("; arrived: {}; missing: {}", named({rank_}), named(lost));
  return fmt::format("rank {} waits for {}{}{}", rank_, purpose_of(plan), title(stage.plan), who);
}

void StragglerReport::look(int plan, int lane, milliseconds deadline) {
  Cursor& cursor = plans_[std::size_t(plan)].cursors[std::size_t(lane)];
  if (++cursor.looks <= kFreeLooks) return;
  const auto now = engine::Clock::now();
  if (cursor.looked != engine::Clock::time_point{})
    cursor.waited += std::min<nanoseconds>(now - cursor.looked, kAttention);
  cursor.looked = now;
  if (cursor.waited < kLong) return;
  liveness_.wait(plan, now);
  const bool late = cursor.waited >= deadline;
  if (!late && !others_ask(plan, now)) {
    cursor.late = {};
    return;
  }
  if (cursor.late == engine::Clock::time_point{}) cursor.late = now;
  const auto waited = late ? deadline : std::chrono::duration_cast<milliseconds>(cursor.waited);
  stop_late_lane(plan, lane, waited, cursor.late, now);
}

// Returns whether other ranks ask for which rank this one waits in the plan. A question about a
// plan in which it does not wait counts for all plans.
bool StragglerReport::others_ask(int plan, Time now) const {
  const std::optional<int> asked = liveness_.asked(now);
  if (!asked || *asked == plan || std::size_t(*asked) >= plans_.size()) return bool(asked);
  const std::vector<Cursor>& cursors = plans_[std::size_t(*asked)].cursors;
  return std::none_of(cursors.begin(), cursors.end(),
                      [](const Cursor& c) { return c.waited >= kLong; });
}

}  // namespace lockstep::collectives
