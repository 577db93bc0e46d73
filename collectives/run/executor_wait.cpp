// SPDX-License-Identifier: MIT
// Waiting for plans, and what is said where that takes too long.
#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "collectives/run/executor.h"

namespace lockstep::collectives {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// A waiter looks so often before it sleeps; after the first few it lets other threads run in
// between, since with more ranks than cores the one that it waits for may need this core.
constexpr int kSpins = 2000, kBareSpins = 32;
// Before a wait first looks at the clock it reduces this part of the blocks of a look.
constexpr int kPartAtOnce = 4;
// With messages under way it looks less often: the way to another host is longer than to another
// core, each look is a system call, and the sleep ends when something comes.
constexpr int kMessageSpins = 4;
// A sleep ends at the latest after this. Who sleeps until a message comes does not hear of what
// other ranks of the host do: then after the second, where a lane waits for them; nor, where the
// transport cannot be woken, of plans that another thread starts: then after the third. What a
// device has done nobody tells: then after the fourth.
constexpr std::chrono::microseconds kSleep{1000}, kArrivalSleep{50}, kDeafSleep{200},
    kDeviceSleep{50};
// Where another thread is at work it may just have passed over what has arrived since.
constexpr std::chrono::microseconds kBusySleep{50};
// Of lists of ranks: such a row is one word, and so many words are the most.
constexpr std::size_t kManyInARow = 5, kMostInList = 16;

// "0 2 4 to 511": five in a row, or more, are shortened; "0 2 4 ... and 7 more" where all would be
// too long.
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

// "rank 1", "ranks 1 2": a bare number would read as how many.
std::string named(const std::vector<int>& ranks) {
  if (ranks.empty()) return "none";
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranks_text(ranks));
}

}  // namespace

// One call of `wait` that really waits: counts its time, and lends its purpose to the plan.
class Executor::Waiter {
 public:
  Waiter(Executor& executor, int plan, std::string_view purpose, engine::Clock::time_point begin)
      : executor_(executor),
        plan_(plan),
        entry_(executor.entries_[std::size_t(plan)]),
        begin_(begin),
        named_(!purpose.empty()) {
    executor_.waiters_.fetch_add(1);
    if (named_) name(purpose);
    if (ExecutorObserver* observer = executor_.observer_) observer->waits(plan_);
  }
  ~Waiter() {
    if (named_) name({});
    executor_.waiters_.fetch_sub(1);
    const auto end = engine::Clock::now();
    executor_.waited_.fetch_add(std::chrono::duration<double>(end - begin_).count());
    if (ExecutorObserver* observer = executor_.observer_) observer->waited(plan_, begin_, end);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  void name(std::string_view purpose) {
    std::scoped_lock lock(executor_.purposes_);
    entry_.purpose = purpose;
  }
  Executor& executor_;
  int plan_;
  Entry& entry_;
  engine::Clock::time_point begin_;
  bool named_;
};

std::string Executor::purpose_of(const Entry& entry) {
  std::scoped_lock lock(purposes_);
  return entry.purpose.empty() ? "" : entry.purpose + ": ";
}

// Those that the lane's next step needs and that have not come so far.
std::vector<int> Executor::missing(const Entry& entry, int plan, int lane) const {
  const Lane& steps = entry.stage->plan.lanes[std::size_t(rank_)][std::size_t(lane)];
  const std::size_t at = entry.cursors[std::size_t(lane)].step;
  if (at == steps.size()) return {};
  const Step& step = steps[at];
  std::vector<int> ranks;
  if (step.action == Action::kWait) ranks.push_back(steps[std::size_t(step.post)].peer);
  for (const int rank : step.ranks)
    if (!arrived(entry, plan, step, rank)) ranks.push_back(rank);
  return ranks;
}

// "; arrived: 0 2; elsewhere: 3; missing: rank 1": who has come to the lane's step or is known to
// wait in the plan, who waits in another one, and who is named. Empty where nobody is.
std::string Executor::presence(const Entry& entry, int plan, int lane,
                               const std::vector<int>& missing) const {
  if (missing.empty()) return {};
  const auto now = engine::Clock::now();
  const Lane& steps = (*entry.mine)[std::size_t(lane)];
  std::vector<int> here = presence_.waiting(plan, now), elsewhere;
  for (const int rank : steps[entry.cursors[std::size_t(lane)].step].ranks) here.push_back(rank);
  const auto directly = this->missing(entry, plan, lane);
  here.insert(here.end(), directly.begin(), directly.end());
  std::sort(here.begin(), here.end());
  here.erase(std::unique(here.begin(), here.end()), here.end());
  std::erase_if(here, [&](int rank) {
    const auto has = [rank](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    if (has(missing)) return true;
    if (!has(directly) || presence_.waits_in(plan, rank, now)) return false;
    if (presence_.waits(rank, now)) elsewhere.push_back(rank);
    return true;
  });
  return fmt::format("; arrived: {}{}; missing: {}", ranks_text(here),
                     elsewhere.empty() ? "" : "; elsewhere: " + ranks_text(elsewhere),
                     named(missing));
}

// A lane has waited for too long, since then: stops the team with the names of those who are
// silent. False where there is nobody to be named yet.
bool Executor::blame(Entry& entry, int lane, int plan, milliseconds waited,
                     engine::Clock::time_point since, engine::Clock::time_point now) {
  const std::vector<int> named = presence_.silent(plan, missing(entry, plan, lane), since, now);
  if (named.empty()) return false;
  team_.stop(
      {engine::Code::kTimeout,
       fmt::format("{}{}: rank {} waited {} ms{}", purpose_of(entry), title(entry.stage->plan),
                   rank_, waited.count(), presence(entry, plan, lane, named)),
       named, true});
  return true;
}

// The same for all lanes of a plan that are stuck. False where none is.
bool Executor::blame(Entry& entry, int plan, milliseconds waited, engine::Clock::time_point since) {
  bool stuck = false;
  for (std::size_t lane = 0; lane < entry.cursors.size(); ++lane) {
    if (entry.cursors[lane].looks == 0) continue;
    stuck = true;
    if (blame(entry, int(lane), plan, waited, since, engine::Clock::now())) return true;
  }
  return stuck;
}

// A whole call of `wait` takes too long, since then: whom the plan waits for, or a plan that it
// comes after; or what else is wrong.
void Executor::stop_late(int plan, milliseconds waited, engine::Clock::time_point since) {
  std::scoped_lock lock(mutex_);
  if (done(plan)) return;
  Entry& entry = entries_[std::size_t(plan)];
  const std::uint64_t execution = entry.completed.load(std::memory_order_relaxed);
  if (blame(entry, plan, waited, since)) return;
  for (const int earlier : entry.stage->after) {
    Entry& before = entries_[std::size_t(earlier)];
    if (before.completed.load(std::memory_order_relaxed) > execution) continue;
    if (before.requested.load() <= execution)
      return team_.stop({engine::Code::kTimeout,
                         fmt::format("{}: rank {} waited {} ms; it comes after {}, which rank {} "
                                     "has not started",
                                     title(entry.stage->plan), rank_, waited.count(),
                                     before.stage->plan.name, rank_)});
    if (blame(before, earlier, waited, since)) return;
  }
  team_.stop(
      {engine::Code::kTimeout, fmt::format("{}: rank {} waited {} ms, and it is still at work",
                                           title(entry.stage->plan), rank_, waited.count())});
}

// "rank 0 waits for bucket 0 (ring, 4096 bytes); arrived: 0 1; missing: rank 2". Missing are those
// who were lost; where they are not known, whom the first lane needs that needs somebody: of the
// plan, or of one that it comes after.
std::string Executor::waiting_for(int plan, const std::vector<int>& lost) {
  const Entry& entry = entries_[std::size_t(plan)];
  std::string who;
  const auto look_at = [&](int index) {
    const Entry& e = entries_[std::size_t(index)];
    for (std::size_t lane = 0; who.empty() && lane < e.cursors.size(); ++lane) {
      const std::vector<int> directly = missing(e, index, int(lane));
      if (!directly.empty()) who = presence(e, index, int(lane), lost.empty() ? directly : lost);
    }
  };
  look_at(plan);
  for (const int earlier : entry.stage->after) look_at(earlier);
  if (who.empty()) who = fmt::format("; arrived: {}; missing: {}", rank_, named(lost));
  return fmt::format("rank {} waits for {}{}{}", rank_, purpose_of(entry), title(entry.stage->plan),
                     who);
}

// What stopped the team. That a rank died or was lost says nothing of what others waited for: that
// is added by those who know it, once.
void Executor::rethrow_waiting(int plan) {
  try {
    team_.rethrow();
  } catch (const engine::Error& error) {
    if (error.code() != engine::Code::kPeerLost || error.located()) throw;
    std::vector<int> lost = error.ranks();
    std::erase_if(lost, [&](int rank) { return rank >= int(entries_[0].arrivals.size()); });
    std::scoped_lock lock(mutex_);
    throw engine::Error(error.code(), fmt::format("{}; {}", error.what(), waiting_for(plan, lost)),
                        lost, true);
  }
}

// The first looks of a wait: at its own plan alone, and without letting go of the lock, since they
// take no longer than a look at the clock or two. Not at a plan that is stuck already: who waits
// for that shall be named. True when the plan is done.
bool Executor::at_once(int plan) {
  if (observer_.load(std::memory_order_relaxed) != nullptr) return false;
  if (messages_.load(std::memory_order_relaxed) > 0) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  for (const Cursor& cursor : entries_[std::size_t(plan)].cursors)
    if (cursor.looks > 0) return false;
  bool ended = false;
  int budget = std::max(1, options_.blocks_at_once / kPartAtOnce);
  for (int looks = 0; looks < kBareSpins && budget > 0 && !ended && !team_.stopped(); ++looks) {
    pass(budget, ended, plan);
    if (crowded_ || messages_.load(std::memory_order_relaxed) > 0) break;
  }
  lock.unlock();
  if (ended && waiters_.load() > 0) team_.wake();  // who sleeps in `wait`
  return ended;
}

void Executor::wait(int plan, std::string_view purpose, std::optional<milliseconds> deadline) {
  if (team_.stopped()) {
    if (done(plan)) team_.rethrow();
    const Waiter waiter(*this, plan, purpose, engine::Clock::now());
    rethrow_waiting(plan);
  }
  if (done(plan) || at_once(plan)) return;
  const auto begin = engine::Clock::now();
  const Waiter waiter(*this, plan, purpose, begin);
  auto moved_at = begin;
  std::uint64_t moves = moves_.load();
  for (int spins = 0; !done(plan); ++spins) {
    if (team_.stopped()) rethrow_waiting(plan);
    const bool late = deadline && engine::Clock::now() - begin >= *deadline;
    if (late) stop_late(plan, *deadline, begin + *deadline);
    const Looked looked = look_round(options_.blocks_at_once);
    if (looked == Looked::kMoved) {
      spins = 0;
    } else if (spins >= kSpins || (spins >= kMessageSpins && messages_.load() > 0)) {
      const auto now = engine::Clock::now();
      if (moves_.load() != moves) moves = moves_.load(), moved_at = now;
      const milliseconds most = deadline_;
      if (now - moved_at >= most) stop_late(plan, most, moved_at + most);
      idle(deadline && !late
               ? std::clamp(duration_cast<std::chrono::microseconds>(begin + *deadline - now),
                            std::chrono::microseconds(1), kSleep)
               : kSleep,
           plan);
    } else if (spins >= kBareSpins || looked == Looked::kCrowded) {
      std::this_thread::yield();
    }
  }
}

void Executor::sleep(std::chrono::microseconds most) {
  if (!team_.stopped()) idle(most, std::nullopt);
}

// A last look comes after the sleeper has been made, or after others can see that this thread is
// about to sleep, so that nothing is missed between look and sleep.
void Executor::idle(std::chrono::microseconds most, std::optional<int> plan) {
  if (messages_.load(std::memory_order_relaxed) == 0) {
    const Team::Sleeper sleeper(team_);
    const Looked looked = look_round(options_.blocks_at_once);
    if (looked == Looked::kMoved || (plan && done(*plan))) return;
    if (messages_.load() > 0) return;  // posted meanwhile: the next sleep is the transport's
    if (behind_device_) most = std::min(most, kDeviceSleep);
    return sleeper.sleep(looked == Looked::kElsewhere ? std::min(most, kBusySleep) : most);
  }
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Team::Sleeper(team_).sleep(std::min(most, kDeafSleep));
  asleep_.store(true);
  bool ended = false;
  int budget = options_.blocks_at_once;
  if (!pass(budget, ended) && !(plan && done(*plan)) && !team_.stopped()) {
    if (awaits_) most = std::min(most, kArrivalSleep);
    if (behind_device_) most = std::min(most, kDeviceSleep);
    if (!wakes_) most = std::min(most, kDeafSleep);
    try {
      transport_->sleep(int(most.count()));
    } catch (const engine::Error& error) {
      team_.stop(error);
    }
  }
  asleep_.store(false);
  lock.unlock();
  if (ended && waiters_.load() > 0) team_.wake();
}

void Executor::listen() {
  if (transport_ == nullptr) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || team_.stopped()) return;
  try {
    transport_->progress();
  } catch (const engine::Error& error) {
    team_.stop(error);
  }
}

void Executor::wake() noexcept {
  team_.wake();
  if (asleep_.load()) transport_->wake();
}

void Executor::tell_peers() noexcept {
  if (transport_ == nullptr || !team_.stopped()) return;
  std::scoped_lock lock(mutex_);
  try {
    team_.rethrow();
  } catch (const engine::Error& error) {
    transport_->abort(error);
  }
}

void Executor::finish(int plan, std::string_view purpose) {
  wait(plan, purpose);
  if (queued(entries_[std::size_t(plan)])) ops_.wait(mark_of(plan));
}

double Executor::waited_seconds() const {
  return waited_.load();
}

double Executor::messages_seconds() const {
  return flown_.load();
}

}  // namespace lockstep::collectives
