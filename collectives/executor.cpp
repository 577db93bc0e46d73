// SPDX-License-Identifier: MIT
#include "collectives/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

namespace lockstep::collectives {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// A waiter looks so often before it sleeps; after the first few it lets other threads run in
// between, since with more ranks than cores the one that it waits for may need this core.
constexpr int kSpins = 2000, kBareSpins = 32;
// With messages under way it looks less often: the way to another host is longer than to another
// core, each look is a system call, and the sleep ends when something comes.
constexpr int kMessageSpins = 4;
// A sleep ends at the latest after this. Who sleeps until a message comes does not hear of what
// other ranks of the host do, nor of plans that another thread starts: then after the second, or,
// with no other rank here, the third.
constexpr microseconds kSleep{1000}, kMessageSleep{50}, kAloneSleep{200};
// Where another thread is at work it may just have passed over what has arrived since.
constexpr microseconds kBusySleep{50};
// So many looks at a stuck step cost no look at the clock: most steps move within them.
constexpr int kFreeLooks = 32;
// Between two looks at a stuck step at most this much counts as waiting.
constexpr nanoseconds kAttention = milliseconds(100);

// The element type of what a step reduces: norms are float64 whatever the plan's type.
DType type_of(const Step& step, DType plan) {
  return step.from[0].space == Space::kNorms ? DType::kFloat64 : plan;
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

std::size_t OwnedState::elements() const {
  std::size_t sum = 0;
  for (const Range range : ranges) sum += range.size();
  return sum;
}

std::size_t OwnedState::local(std::size_t offset) const {
  std::size_t before = 0;
  for (const Range range : ranges) {
    if (offset >= range.begin && offset < range.end) return before + offset - range.begin;
    before += range.size();
  }
  engine::fail(engine::Code::kInvalid, "no owned range holds element {}", offset);
}

Executor::Executor(int rank, Team& team, Transport* transport, const engine::Ops& ops,
                   OwnedState owned, ExecutorOptions options)
    : rank_(rank),
      team_(team),
      transport_(transport),
      ops_(ops),
      owned_(std::move(owned)),
      options_(std::move(options)),
      deadline_(options_.deadline),
      owned_elements_(owned_.elements()) {
  engine::invariant(team.is_local(rank), "an executor's rank is not of its team");
}

void Executor::open(const StepPlan& step) {
  engine::invariant(entries_.empty(), "an executor is opened once");
  std::size_t from = 0, to = 0;
  for (const Stage& stage : step) {
    Entry& entry = entries_.emplace_back();
    entry.stage = &stage;
    for (const auto& lanes : stage.plan.lanes) {
      auto& counts = entry.arrivals.emplace_back();
      for (const Lane& lane : lanes)
        counts.push_back(std::uint64_t(std::count_if(
            lane.begin(), lane.end(), [](const Step& s) { return s.action == Action::kArrive; })));
    }
    for (const Lane& lane : stage.plan.lanes[std::size_t(rank_)]) {
      entry.cursors.emplace_back().posts.assign(lane.size(), -1);
      for (const Step& s : lane) {
        from = std::max(from, s.from.size()), to = std::max(to, s.to.size());
        engine::require(transport_ || s.peer < 0,
                        "{}: rank {} is to talk to rank {} on another host, without a transport",
                        stage.plan.name, rank_, s.peer);
      }
    }
  }
  from_.resize(from), to_.resize(to);
  for (const bool first : {true, false})
    for (std::size_t i = 0; i < step.size(); ++i)
      if (step[i].first_in_line == first) order_.push_back(int(i));
}

void Executor::start(int plan, const engine::StepState* state) {
  Entry& entry = entries_[std::size_t(plan)];
  engine::invariant(done(plan), "a plan is started before its last execution has ended");
  entry.state.store(state, std::memory_order_relaxed);
  if (observer_.load(std::memory_order_relaxed) != nullptr) entry.began = engine::Clock::now();
  entry.requested.fetch_add(1);
  team_.wake();  // a communication thread that sleeps has something to do
}

bool Executor::done(int plan) const {
  const Entry& entry = entries_[std::size_t(plan)];
  return entry.completed.load() == entry.requested.load();
}

bool Executor::progress(int budget) {
  return look_round(budget) == Looked::kMoved;
}

Executor::Looked Executor::look_round(int budget) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Looked::kElsewhere;
  if (team_.stopped()) return Looked::kStill;
  bool ended = false;
  const bool moved = pass(budget, ended);
  lock.unlock();
  if (ended && waiters_.load() > 0) team_.wake();  // who sleeps in `wait`
  return moved ? Looked::kMoved : Looked::kStill;
}

// Everything that can go wrong in other hands (transport, kernels, hooks) stops the team here.
bool Executor::pass(int budget, bool& ended) {
  const Entry* at = nullptr;
  const auto stop = [&](engine::Code code, const char* why) {
    // Who lost a peer, or was told of a deadline, is told with what it waits for.
    const bool told = code == engine::Code::kPeerLost || code == engine::Code::kTimeout;
    if (at && !told) return team_.stop(code, fmt::format("{}: {}", at->stage->plan.name, why));
    team_.stop(code, why);
  };
  bool moved = false;
  try {
    if (messages_.load(std::memory_order_relaxed) > 0) moved |= transport_->progress();
    for (const int plan : order_) {
      Entry& entry = entries_[std::size_t(plan)];
      const std::uint64_t execution = entry.completed.load(std::memory_order_relaxed);
      if (entry.requested.load() == execution) continue;
      const auto& after = entry.stage->after;
      if (!std::all_of(after.begin(), after.end(), [&](int earlier) {
            return entries_[std::size_t(earlier)].completed.load(std::memory_order_relaxed) >
                   execution;
          }))
        continue;
      at = &entry;
      bool all = true;
      for (std::size_t lane = 0; lane < entry.cursors.size(); ++lane) {
        while (advance(entry, plan, int(lane), budget)) moved = true;
        all &= entry.cursors[lane].step == entry.stage->plan.lanes[std::size_t(rank_)][lane].size();
      }
      if (!all) continue;
      for (Cursor& cursor : entry.cursors) cursor.step = 0;
      if (ExecutorObserver* observer = observer_) {
        observer->completed(plan, entry.began, engine::Clock::now());
      }
      entry.completed.store(execution + 1);  // before looking for sleepers
      moved = ended = true;
    }
    if (moved) moves_.fetch_add(1);
    return moved;
  } catch (const engine::Error& error) {
    stop(error.code(), error.what());
  } catch (const std::exception& error) {
    stop(engine::Code::kAborted, error.what());
  }
  return false;
}

// One step of a lane, or some blocks of a reduction. True when it moved. A lane moves one step
// after the other; reductions cost budget, all else is short.
bool Executor::advance(Entry& entry, int plan, int lane, int& budget) {
  Cursor& cursor = entry.cursors[std::size_t(lane)];
  const Plan& p = entry.stage->plan;
  const Lane& steps = p.lanes[std::size_t(rank_)][std::size_t(lane)];
  if (cursor.step == steps.size()) return false;
  const Step& step = steps[cursor.step];
  const int tag = plan * kMaxLanes + lane;
  const std::size_t bytes = step.count * engine::size_of(p.dtype);
  switch (step.action) {
    case Action::kReduce:
      if (budget <= 0) return false;
      if (!reduce(entry, cursor, step, budget)) return true;
      break;
    case Action::kPostSend:
      cursor.posts[cursor.step] =
          transport_->post_send(step.peer, tag, address(step.from[0], p.dtype, 0), bytes);
      messages_.fetch_add(1, std::memory_order_relaxed);
      break;
    case Action::kPostReceive:
      cursor.posts[cursor.step] =
          transport_->post_receive(step.peer, tag, address(step.to[0], p.dtype, 0), bytes);
      messages_.fetch_add(1, std::memory_order_relaxed);
      break;
    case Action::kWait:
      if (!transport_->test(cursor.posts[std::size_t(step.post)])) {
        look(entry, plan, lane);
        return false;
      }
      messages_.fetch_sub(1, std::memory_order_relaxed);
      break;
    case Action::kArrive:
      team_.arrive(plan, rank_, lane);
      break;
    case Action::kAwait:
      if (!std::all_of(step.ranks.begin(), step.ranks.end(),
                       [&](int rank) { return arrived(entry, plan, step, rank); })) {
        look(entry, plan, lane);
        return false;
      }
      break;
  }
  ++cursor.step;
  cursor.looks = 0;
  cursor.waited = {};
  cursor.looked = {};
  return true;
}

bool Executor::arrived(const Entry& entry, int plan, const Step& await, int rank) const {
  const std::uint64_t before = entry.completed.load(std::memory_order_relaxed) *
                               entry.arrivals[std::size_t(rank)][std::size_t(await.lane)];
  return team_.counter(plan, rank, await.lane).load() >= before + std::uint64_t(await.phase);
}

// As many blocks as there is budget, so that `progress` comes back soon; blocks are counted from
// the arena's beginning. Squares and updates go block by block. True when the step is done.
bool Executor::reduce(Entry& entry, Cursor& cursor, const Step& step, int& budget) {
  if (options_.hook) options_.hook();
  const DType dtype = type_of(step, entry.stage->plan.dtype);
  const std::size_t at = step.from[0].offset + cursor.element;
  const bool single =
      options_.hook || step.epilogue == Epilogue::kSquares || step.epilogue == Epilogue::kUpdate;
  const std::size_t most = (single ? 1 : std::size_t(budget)) * engine::kBlock;
  const std::size_t count = std::min(step.count - cursor.element, most - at % engine::kBlock);
  budget -= int((at % engine::kBlock + count + engine::kBlock - 1) / engine::kBlock);
  for (std::size_t i = 0; i < step.from.size(); ++i)
    from_[i] = address(step.from[i], dtype, cursor.element);
  for (std::size_t i = 0; i < step.to.size(); ++i)
    to_[i] = address(step.to[i], dtype, cursor.element);
  engine::ReduceArguments arguments;
  arguments.dtype = dtype;
  arguments.op = entry.stage->plan.op;
  arguments.from = {from_.data(), step.from.size()};
  arguments.to = {to_.data(), step.to.size()};
  arguments.count = count;
  arguments.stream = streams(step, engine::size_of(dtype));
  arguments.epilogue = step.epilogue;
  arguments.scale = step.scale;
  if (step.epilogue == Epilogue::kSquares) arguments.squares = norms() + at / engine::kBlock;
  if (step.epilogue == Epilogue::kUpdate) update_arguments(entry, cursor, step, arguments);
  ops_.reduce(arguments);
  cursor.element += count;
  if (cursor.element < step.count) return false;
  cursor.element = 0;
  return true;
}

// An update reads the old weights that it stores into.
bool Executor::streams(const Step& step, std::size_t width) const {
  if (step.count * width < options_.stream_from || step.epilogue == Epilogue::kUpdate) return false;
  return std::none_of(step.to.begin(), step.to.end(), [&](const Operand& to) {
    return std::find(step.from.begin(), step.from.end(), to) != step.from.end();
  });
}

void Executor::update_arguments(Entry& entry, Cursor& cursor, const Step& step,
                                engine::ReduceArguments& arguments) {
  engine::invariant(owned_.rule, "a plan updates, and its executor has no rule");
  const std::size_t width = engine::size_of(entry.stage->plan.dtype);
  if (cursor.element == 0) cursor.owned = owned_.local(step.from[0].offset);
  arguments.rule = owned_.rule;
  arguments.state = entry.state.load(std::memory_order_relaxed);
  arguments.weight = address({rank_, Space::kWeight, step.from[0].offset}, entry.stage->plan.dtype,
                             cursor.element);
  for (std::size_t slot = 0; slot < owned_.rule->slots(); ++slot)
    arguments.slots[slot] =
        owned_.slots + (slot * owned_elements_ + cursor.owned + cursor.element) * width;
  arguments.scale = 1;
  if (owned_.rule->needs() != engine::Needs::kGlobalNorm) return;
  const std::uint64_t execution = entry.completed.load(std::memory_order_relaxed) + 1;
  if (entry.scaled != execution) {
    entry.scaled = execution;
    entry.scale = clipping_scale();
  }
  arguments.scale = entry.scale;
}

// min(1, clip / norm), where the norm is of the whole gradient: the blocks' sums of squares are
// added in the arena's order, so that it has the same bits on all ranks and for all slicings.
double Executor::clipping_scale() const {
  double squares = 0;
  for (std::size_t block = 0; block < owned_.norm_blocks; ++block) squares += norms()[block];
  return std::min(1.0, owned_.rule->clip_norm / (std::sqrt(squares) + 1e-12));
}

double* Executor::norms() const {
  return reinterpret_cast<double*>(team_.base(rank_, Space::kNorms));
}

std::byte* Executor::address(const Operand& operand, DType dtype, std::size_t element) const {
  const std::size_t width =
      engine::size_of(operand.space == Space::kNorms ? DType::kFloat64 : dtype);
  return team_.base(operand.rank, operand.space) + (operand.offset + element) * width;
}

// The lane is stuck: counts how long somebody has watched it.
void Executor::look(Entry& entry, int plan, int lane) {
  Cursor& cursor = entry.cursors[std::size_t(lane)];
  if (++cursor.looks <= kFreeLooks) return;
  const auto now = engine::Clock::now();
  if (cursor.looked != engine::Clock::time_point{})
    cursor.waited += std::min<nanoseconds>(now - cursor.looked, kAttention);
  cursor.looked = now;
  const milliseconds deadline = deadline_;
  if (cursor.waited >= deadline) stop_late(entry, lane, plan, deadline);
}

std::string Executor::purpose_of(const Entry& entry) {
  std::scoped_lock lock(purposes_);
  return entry.purpose.empty() ? "" : entry.purpose + ": ";
}

// "; arrived: 0 2; missing: 1" of this rank and those that the lane's next step needs; empty where
// it needs none.
std::string Executor::presence(const Entry& entry, int plan, int lane) const {
  const Lane& steps = entry.stage->plan.lanes[std::size_t(rank_)][std::size_t(lane)];
  const std::size_t at = entry.cursors[std::size_t(lane)].step;
  if (at == steps.size()) return {};
  const Step& step = steps[at];
  std::vector<int> here, missing;
  const int peer = step.action == Action::kWait ? steps[std::size_t(step.post)].peer : step.peer;
  if (peer >= 0) missing.push_back(peer);
  for (const int rank : step.ranks)
    (arrived(entry, plan, step, rank) ? here : missing).push_back(rank);
  if (here.empty() && missing.empty()) return {};
  const bool asked = std::count(step.ranks.begin(), step.ranks.end(), rank_) > 0;  // its own lanes
  if (!asked) here.insert(std::upper_bound(here.begin(), here.end(), rank_), rank_);
  const auto list = [](const std::vector<int>& ranks) {
    return ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, " "));
  };
  return fmt::format("; arrived: {}; missing: {}", list(here), list(missing));
}

// Stops the team with the names of those whom this lane waits for.
void Executor::stop_late(Entry& entry, int lane, int plan, milliseconds waited) {
  team_.stop(engine::Code::kTimeout, fmt::format("{}{}: rank {} waited {} ms{}", purpose_of(entry),
                                                 title(entry.stage->plan), rank_, waited.count(),
                                                 presence(entry, plan, lane)));
}

// A whole call of `wait` took too long: names the first stuck lane of the plan, or of a plan that
// it comes after, or says what else is wrong.
void Executor::stop_late(int plan, milliseconds waited) {
  std::scoped_lock lock(mutex_);
  if (done(plan)) return;
  Entry& entry = entries_[std::size_t(plan)];
  const std::uint64_t execution = entry.completed.load(std::memory_order_relaxed);
  for (std::size_t lane = 0; lane < entry.cursors.size(); ++lane)
    if (entry.cursors[lane].looks > 0) return stop_late(entry, int(lane), plan, waited);
  for (const int earlier : entry.stage->after) {
    Entry& before = entries_[std::size_t(earlier)];
    if (before.completed.load(std::memory_order_relaxed) > execution) continue;
    if (before.requested.load() <= execution)
      return team_.stop(engine::Code::kTimeout,
                        fmt::format("{}: rank {} waited {} ms; it comes after {}, which rank {} "
                                    "has not started",
                                    title(entry.stage->plan), rank_, waited.count(),
                                    before.stage->plan.name, rank_));
    for (std::size_t lane = 0; lane < before.cursors.size(); ++lane)
      if (before.cursors[lane].looks > 0) return stop_late(before, int(lane), earlier, waited);
  }
  team_.stop(engine::Code::kTimeout,
             fmt::format("{}: rank {} waited {} ms, and it is still at work",
                         title(entry.stage->plan), rank_, waited.count()));
}

// "rank 0 waits for bucket 0 (ring, 4096 bytes); arrived: 0; missing: 1": by the first lane of the
// plan, or of one that it comes after, whose next step needs somebody.
std::string Executor::waiting_for(int plan) {
  const Entry& entry = entries_[std::size_t(plan)];
  std::string who;
  const auto look_at = [&](int index) {
    const Entry& e = entries_[std::size_t(index)];
    for (std::size_t lane = 0; who.empty() && lane < e.cursors.size(); ++lane)
      who = presence(e, index, int(lane));
  };
  look_at(plan);
  for (const int earlier : entry.stage->after) look_at(earlier);
  if (who.empty()) who = fmt::format("; arrived: {}; missing: not known", rank_);
  return fmt::format("rank {} waits for {}{}{}", rank_, purpose_of(entry), title(entry.stage->plan),
                     who);
}

// What stopped the team. That a rank died or was lost says nothing of what others waited for: that
// is added by those who know it.
void Executor::rethrow_waiting(int plan) {
  try {
    team_.rethrow();
  } catch (const engine::Error& error) {
    if (error.code() != engine::Code::kPeerLost) throw;
    std::scoped_lock lock(mutex_);
    throw engine::Error(error.code(), fmt::format("{}; {}", error.what(), waiting_for(plan)));
  }
}

void Executor::wait(int plan, std::string_view purpose, std::optional<milliseconds> deadline) {
  if (team_.stopped()) {
    if (done(plan)) team_.rethrow();
    const Waiter waiter(*this, plan, purpose, engine::Clock::now());
    rethrow_waiting(plan);
  }
  if (done(plan)) return;
  const auto begin = engine::Clock::now();
  const Waiter waiter(*this, plan, purpose, begin);
  auto moved_at = begin;
  std::uint64_t moves = moves_.load();
  for (int spins = 0; !done(plan); ++spins) {
    if (team_.stopped()) rethrow_waiting(plan);
    if (deadline && engine::Clock::now() - begin >= *deadline) stop_late(plan, *deadline);
    if (progress()) {
      spins = 0;
    } else if (spins >= kSpins || (spins >= kMessageSpins && messages_.load() > 0)) {
      const auto now = engine::Clock::now();
      if (moves_.load() != moves) moves = moves_.load(), moved_at = now;
      if (now - moved_at >= deadline_.load()) stop_late(plan, deadline_);
      idle(deadline ? std::clamp(duration_cast<microseconds>(begin + *deadline - now),
                                 microseconds(1), kSleep)
                    : kSleep,
           plan);
    } else if (spins >= kBareSpins) {
      std::this_thread::yield();
    }
  }
}

void Executor::sleep(microseconds most) {
  if (!team_.stopped()) idle(most, std::nullopt);
}

// A last look comes after the sleeper has been made, so that nothing is missed between look and
// sleep.
void Executor::idle(microseconds most, std::optional<int> plan) {
  if (messages_.load(std::memory_order_relaxed) == 0) {
    const Team::Sleeper sleeper(team_);
    const Looked looked = look_round(64);
    if (looked == Looked::kMoved || (plan && done(*plan))) return;
    return sleeper.sleep(looked == Looked::kElsewhere ? std::min(most, kBusySleep) : most);
  }
  most = std::min(most, team_.local().size() > 1 ? kMessageSleep : kAloneSleep);
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Team::Sleeper(team_).sleep(most);
  try {
    transport_->sleep(int(most.count()));
  } catch (const engine::Error& error) {
    team_.stop(error.code(), error.what());
  }
}

void Executor::tell_peers() noexcept {
  if (transport_ == nullptr || !team_.stopped()) return;
  try {
    std::scoped_lock lock(mutex_);
    team_.rethrow();
  } catch (const engine::Error& error) {
    transport_->abort(error.code(), error.what());
  }
}

double Executor::waited_seconds() const {
  return waited_.load();
}

}  // namespace lockstep::collectives
