// SPDX-License-Identifier: MIT
#include "collectives/run/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "collectives/run/host_sum.h"

namespace lockstep::collectives {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// Polls before a waiter sleeps. After the first few it lets other threads run in between. With more
// ranks than cores, the rank that it waits for may need this core.
constexpr int kSpins = 2000, kBareSpins = 32;
// Divisor of a poll's blocks: a wait reduces this part of them before it first reads the clock.
constexpr int kPartAtOnce = 4;
// Polls before a waiter sleeps with messages in flight. They are fewer: another host is farther
// than another core, each poll is a system call, and the sleep ends when a message arrives.
constexpr int kMessageSpins = 4;
// Longest sleeps. A thread that sleeps until a message arrives does not notice other ranks of the
// host: kArrivalSleep applies if a lane waits for them. If the transport cannot be woken, it does
// not notice plans that another thread starts: then kDeafSleep applies. Nobody reports what a
// device has done: then kDeviceSleep applies.
constexpr std::chrono::microseconds kSleep{1000}, kArrivalSleep{50}, kDeafSleep{200},
    kDeviceSleep{50};
// Longest sleep while another thread is at work, which may just have missed what has arrived since.
constexpr std::chrono::microseconds kBusySleep{50};

// Returns the element type that a step reduces: norms are float64 whatever the plan's type.
DType reduced_type(const Step& step, DType plan) {
  return step.from[0].space == Space::kNorms ? DType::kFloat64 : plan;
}

}  // namespace

Executor::Executor(int rank, Team& team, Transport* transport, const engine::Ops& ops,
                   OwnedState owned, ExecutorOptions options)
    : rank_(rank),
      team_(team),
      transport_(transport),
      ops_(ops),
      options_(std::move(options)),
      address_(team, ops),
      deadline_(options_.deadline),
      wakes_(transport != nullptr && transport->wake()),
      messages_(transport, ops, address_, options_.hook != nullptr),
      updates_(rank, team, ops, std::move(owned)),
      stragglers_(rank, team, transport, options_.answer, plans_) {
  engine::invariant(team.is_local(rank), "an executor's rank is not of its team");
  team.set_ops(rank, &ops);
}

void Executor::open(const StepPlan& step, engine::Buffer staging) {
  engine::invariant(plans_.empty(), "an executor is opened once");
  plans_ = std::vector<PlanState>(step.size());
  stragglers_.open();
  std::size_t from = 0, to = 0;
  int event = event_of(int(step.size()));
  for (std::size_t i = 0; i < step.size(); ++i) {
    PlanState& plan = plans_[i];
    plan.open(step[i], rank_, event);
    event += int(plan.cursors.size());
    engine::invariant(!plan.vendor || options_.vendor_sum, "a vendor's sum without the vendor");
    for (const Lane& lane : *plan.mine)
      for (const Step& s : lane) {
        from = std::max(from, s.from.size()), to = std::max(to, s.to.size());
        engine::require(transport_ || s.peer < 0,
                        "{}: rank {} is to talk to rank {} on another host, without a transport",
                        step[i].plan.name, rank_, s.peer);
      }
  }
  operands_.from.resize(from), operands_.to.resize(to);
  const bool on_device = !ops_.in_host_memory();
  if (staging.bytes() == 0) staging = engine::Buffer(WireStaging::bytes(step, rank_, on_device));
  messages_.open(WireStaging(step, rank_, on_device, std::move(staging)));
  stream_updates_ = updates_.touched_bytes(step) > options_.cache;
  for (const bool first : {true, false})
    for (std::size_t i = 0; i < step.size(); ++i)
      if (step[i].first_in_line == first) order_.push_back(int(i));
}

void Executor::start(int plan, const engine::StepState* step_state) {
  PlanState& state = plans_[std::size_t(plan)];
  engine::invariant(done(plan), "a plan is started before its last execution has ended");
  state.step_state.store(step_state, std::memory_order_relaxed);
  if (ExecutorObserver* observer = observer_) {
    state.began = engine::Clock::now();
    observer->starts(plan);
  }
  // Libraries require the same calls in the same order on all ranks: the order in which plans
  // start.
  if (state.vendor) state.launch = vendor_.starts++;
  state.requested.fetch_add(1);
  wake();  // a sleeping communication thread has work
}

bool Executor::done(int plan) const {
  const PlanState& state = plans_[std::size_t(plan)];
  return state.completed.load() == state.requested.load();
}

bool Executor::progress(int budget) {
  return look_round(budget) == ProgressState::kMoved;
}

Executor::ProgressState Executor::look_round(int budget) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return ProgressState::kBusy;
  if (team_.stopped()) return ProgressState::kStill;
  bool ended = false;
  const bool moved = pass(budget, ended);
  const bool oversubscribed = last_pass_.oversubscribed;
  lock.unlock();
  if (ended && threads_.waiters.load() > 0) team_.wake();  // threads that sleep in `wait`
  return moved            ? ProgressState::kMoved
         : oversubscribed ? ProgressState::kOversubscribed
                          : ProgressState::kStill;
}

// Moves plans. Any error of other code (transport, kernels, hooks) stops the team here.
bool Executor::pass(int& budget, bool& ended, int plan) {
  last_pass_ = {};
  messages_.look_again();
  try {
    bool moved = messages_.any_under_way() && transport_->progress();
    if (plan != kAll) {
      moved |= move(plan, budget, ended);
    } else {
      for (const int one : order_) moved |= move(one, budget, ended);
    }
    if (moved) {  // only here, under the lock
      threads_.moves.store(threads_.moves.load(std::memory_order_relaxed) + 1,
                           std::memory_order_relaxed);
    }
    return moved;
  } catch (const std::exception& e) {
    const engine::Error error = engine::as_error(e);
    // An error about a lost peer or a deadline already says where this rank waited.
    const bool told =
        error.code() == engine::Code::kPeerLost || error.code() == engine::Code::kTimeout;
    team_.stop(
        last_pass_.at && !told
            ? error.with(fmt::format("{}: {}", last_pass_.at->stage->plan.name, error.what()))
            : error);
  }
  return false;
}

// Moves all lanes of a plan as far as they go. Returns whether anything moved.
bool Executor::move(int plan, int& budget, bool& ended) {
  PlanState& state = plans_[std::size_t(plan)];
  const std::uint64_t execution = state.completed.load(std::memory_order_relaxed);
  if (state.requested.load() == execution) return false;
  for (const int earlier : state.stage->after)
    if (plans_[std::size_t(earlier)].completed.load(std::memory_order_relaxed) <= execution)
      return false;
  last_pass_.at = &state;
  if (state.updates)
    updates_.find_factors(state.step_state.load(std::memory_order_relaxed), execution + 1);
  bool moved = false, all = true;
  for (std::size_t lane = 0; lane < state.cursors.size(); ++lane) {
    while (advance(state, plan, int(lane), budget)) moved = true;
    all &= state.cursors[lane].step == (*state.mine)[lane].size();
  }
  if (!all) return moved;
  if (state.queued(ops_)) ops_.record_event(event_of(plan));
  vendor_.ends += state.vendor;
  for (Cursor& cursor : state.cursors) cursor.step = 0;
  if (ExecutorObserver* observer = observer_) {
    observer->completed(plan, state.began, engine::Clock::now());
  }
  state.completed.store(execution + 1);  // before it looks for sleepers
  return ended = true;
}

// Runs one step of a lane, or some blocks of a reduction. Returns whether it moved. Reductions, and
// messages that are copied, cost budget; all else is short.
bool Executor::advance(PlanState& state, int plan, int lane, int& budget) {
  Cursor& cursor = state.cursors[std::size_t(lane)];
  const Lane& steps = (*state.mine)[std::size_t(lane)];
  if (cursor.step == steps.size()) return false;
  const Step& step = steps[cursor.step];
  switch (step.action) {
    case Action::kReduce:
      if (budget <= 0) return false;
      if (!reduce(state, cursor, step, budget)) return true;
      break;
    case Action::kPostSend:
    case Action::kPostReceive:
    case Action::kWait: {
      const Messages::Outcome outcome = messages_.move(state, cursor, {plan, lane}, budget);
      if (outcome == Messages::Outcome::kMissing) stragglers_.look(plan, lane, deadline_);
      if (outcome != Messages::Outcome::kThrough) return outcome == Messages::Outcome::kMoved;
      break;
    }
    case Action::kArrive:
      // Records before it counts: a rank that sees the count finds the event.
      if (state.queued(ops_)) {
        ops_.record_event(kArrivals);
        if (const engine::ProcessEvent* event = team_.event(rank_)) event->set(ops_);
      }
      team_.arrive(plan, rank_, lane);
      break;
    case Action::kAwait:
      if (!all_arrived(state, plan, step)) {
        last_pass_.awaits = true;
        stragglers_.look(plan, lane, deadline_);
        return false;
      }
      if (state.queued(ops_)) follow(step.ranks);
      break;
    case Action::kVendor:
      if (state.launch != vendor_.ends) return false;
      options_.vendor_sum(address_(state, step.to[0], state.stage->plan.dtype, 0), step.count,
                          state.stage->plan.dtype);
      break;
  }
  cursor.next();
  return true;
}

// Returns whether all ranks have arrived. Looks up where the missing ranks ran last, and stops at
// the first that shared this processor.
bool Executor::all_arrived(const PlanState& state, int plan, const Step& await) {
  bool all = true;
  for (const int rank : await.ranks) {
    if (state.arrived(team_, plan, await, rank)) continue;
    all = false;
    if (rank != rank_ && team_.beside(rank)) last_pass_.oversubscribed = true;
    if (last_pass_.oversubscribed) break;
  }
  return all;
}

// Orders what this rank queues now behind what these ranks have queued before they arrived. Ranks
// of other processes have no ops here.
void Executor::follow(const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    if (rank == rank_) continue;
    if (const engine::Ops* theirs = team_.ops(rank)) {
      ops_.reduce_behind(*theirs, kArrivals);
    } else {
      team_.event(rank)->hold_back(ops_);
    }
  }
}

// Reduces as many blocks as the budget allows, so that `progress` returns soon. Blocks are counted
// from the arena's beginning. In host memory, squares go block by block. If segments of the arena
// differ, a kernel call handles one. Updates on a device are an exception: a call goes on over
// segments that differ only in their decay. Returns whether the step is done.
bool Executor::reduce(PlanState& state, Cursor& cursor, const Step& step, int& budget) {
  if (options_.hook) options_.hook();
  const DType dtype = reduced_type(step, state.stage->plan.dtype);
  const std::size_t at = step.from[0].offset + cursor.element;
  const bool segments = updates_.by_segments(step);
  const bool squares = step.epilogue == Epilogue::kSquares;
  const bool single = options_.hook || (squares && ops_.in_host_memory());
  const std::size_t most = (single ? 1 : std::size_t(budget)) * engine::kBlock;
  const std::size_t count = std::min(step.count - cursor.element, most - at % engine::kBlock);
  budget -= int((at % engine::kBlock + count + engine::kBlock - 1) / engine::kBlock);
  engine::ReduceArguments arguments;
  arguments.dtype = dtype;
  arguments.op = state.stage->plan.op;
  arguments.from = {operands_.from.data(), step.from.size()};
  arguments.to = {operands_.to.data(), step.to.size()};
  arguments.stream = streams(step, engine::size_of(dtype));
  arguments.read_ahead = reads_ahead();
  arguments.epilogue = step.epilogue;
  arguments.scale = step.scale;
  const std::size_t end = cursor.element + count;
  const bool by_host = !ops_.in_host_memory() && state.stage->by_host;
  const bool joins = updates_.joins_segments(step) && !by_host;
  while (cursor.element < end) {
    const std::size_t here = step.from[0].offset + cursor.element;
    arguments.count = end - cursor.element;
    const std::size_t segment = segments ? updates_.cut(step, here, joins, arguments) : 0;
    for (std::size_t i = 0; i < step.from.size(); ++i)
      operands_.from[i] = address_(state, step.from[i], dtype, cursor.element);
    for (std::size_t i = 0; i < step.to.size(); ++i)
      operands_.to[i] = address_(state, step.to[i], dtype, cursor.element);
    if (squares) arguments.squares = updates_.norms() + here / engine::kBlock;
    if (step.epilogue == Epilogue::kUpdate) updates_.add_update(state, cursor, step, arguments);
    if (segments) updates_.add_segment(segment, here, arguments);
    if (by_host) {
      sum_on_host(arguments);
    } else {
      ops_.reduce(arguments);
    }
    cursor.element += arguments.count;
  }
  if (cursor.element < step.count) return false;
  cursor.element = 0;
  return true;
}

bool Executor::streams(const Step& step, std::size_t width) const {
  if (step.epilogue == Epilogue::kUpdate) return stream_updates_;
  if (step.count * width < options_.stream_from) return false;
  return std::none_of(step.to.begin(), step.to.end(), [&](const Operand& to) {
    return std::find(step.from.begin(), step.from.end(), to) != step.from.end();
  });
}

// Counts the time of a call of `wait` that really waits, and lends its purpose to the plan.
class Executor::Waiter {
 public:
  Waiter(Executor& executor, int plan, std::string_view purpose, engine::Clock::time_point begin)
      : executor_(executor), plan_(plan), begin_(begin), named_(!purpose.empty()) {
    executor_.threads_.waiters.fetch_add(1);
    if (named_) executor_.stragglers_.set_purpose(plan_, purpose);
    if (ExecutorObserver* observer = executor_.observer_) observer->waits(plan_);
  }
  ~Waiter() {
    if (named_) executor_.stragglers_.set_purpose(plan_, {});
    executor_.threads_.waiters.fetch_sub(1);
    const auto end = engine::Clock::now();
    executor_.threads_.waited.fetch_add(std::chrono::duration<double>(end - begin_).count());
    if (ExecutorObserver* observer = executor_.observer_) observer->waited(plan_, begin_, end);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  Executor& executor_;
  int plan_;
  engine::Clock::time_point begin_;
  bool named_;
};

void Executor::stop_late(int plan, milliseconds waited, engine::Clock::time_point since) {
  std::scoped_lock lock(mutex_);
  if (!done(plan)) stragglers_.stop_late(plan, waited, since);
}

// Throws what stopped the team. The loss of a rank does not say what others waited for, so ranks
// that know it add it, once.
void Executor::rethrow_waiting(int plan) {
  try {
    team_.rethrow();
  } catch (const engine::Error& error) {
    if (error.code() != engine::Code::kPeerLost || error.located()) throw;
    std::vector<int> lost = error.ranks();
    std::erase_if(lost, [&](int rank) { return rank >= int(plans_[0].arrivals.size()); });
    std::scoped_lock lock(mutex_);
    throw engine::Error(error.code(),
                        fmt::format("{}; {}", error.what(), stragglers_.waiting_for(plan, lost)),
                        lost, true);
  }
}

// Polls its own plan first, without releasing the lock, since that takes as long as one or two
// readings of the clock. Skips a plan that is stuck already, since the missing ranks must be named.
// Returns whether the plan is done.
bool Executor::at_once(int plan) {
  if (observer_.load(std::memory_order_relaxed) != nullptr) return false;
  if (messages_.any_under_way()) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  for (const Cursor& cursor : plans_[std::size_t(plan)].cursors)
    if (cursor.looks > 0) return false;
  bool ended = false;
  int budget = std::max(1, options_.blocks_at_once / kPartAtOnce);
  for (int looks = 0; looks < kBareSpins && budget > 0 && !ended && !team_.stopped(); ++looks) {
    pass(budget, ended, plan);
    if (last_pass_.oversubscribed || messages_.any_under_way()) break;
  }
  lock.unlock();
  if (ended && threads_.waiters.load() > 0) team_.wake();  // threads that sleep in `wait`
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
  std::uint64_t moves = threads_.moves.load();
  for (int spins = 0; !done(plan); ++spins) {
    if (team_.stopped()) rethrow_waiting(plan);
    const bool late = deadline && engine::Clock::now() - begin >= *deadline;
    if (late) stop_late(plan, *deadline, begin + *deadline);
    const ProgressState looked = look_round(options_.blocks_at_once);
    if (looked == ProgressState::kMoved) {
      spins = 0;
    } else if (spins >= kSpins || (spins >= kMessageSpins && messages_.any_under_way())) {
      const auto now = engine::Clock::now();
      if (threads_.moves.load() != moves) moves = threads_.moves.load(), moved_at = now;
      const milliseconds most = deadline_;
      if (now - moved_at >= most) stop_late(plan, most, moved_at + most);
      idle(deadline && !late
               ? std::clamp(duration_cast<std::chrono::microseconds>(begin + *deadline - now),
                            std::chrono::microseconds(1), kSleep)
               : kSleep,
           plan);
    } else if (spins >= kBareSpins || looked == ProgressState::kOversubscribed) {
      std::this_thread::yield();
    }
  }
}

void Executor::sleep(std::chrono::microseconds most) {
  if (!team_.stopped()) idle(most, std::nullopt);
}

// Polls once more after the sleeper has been made, or after others can see that this thread is
// about to sleep. So nothing is missed between poll and sleep.
void Executor::idle(std::chrono::microseconds most, std::optional<int> plan) {
  if (!messages_.any_under_way()) {
    const Team::Sleeper sleeper(team_);
    const ProgressState looked = look_round(options_.blocks_at_once);
    if (looked == ProgressState::kMoved || (plan && done(*plan))) return;
    if (messages_.any_under_way()) return;  // posted since: the transport sleeps next
    if (messages_.behind_device()) most = std::min(most, kDeviceSleep);
    return sleeper.sleep(looked == ProgressState::kBusy ? std::min(most, kBusySleep) : most);
  }
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Team::Sleeper(team_).sleep(std::min(most, kDeafSleep));
  threads_.asleep.store(true);
  bool ended = false;
  int budget = options_.blocks_at_once;
  if (!pass(budget, ended) && !(plan && done(*plan)) && !team_.stopped()) {
    if (last_pass_.awaits) most = std::min(most, kArrivalSleep);
    if (messages_.behind_device()) most = std::min(most, kDeviceSleep);
    if (!wakes_) most = std::min(most, kDeafSleep);
    try {
      transport_->sleep(int(most.count()));
    } catch (const engine::Error& error) {
      team_.stop(error);
    }
  }
  threads_.asleep.store(false);
  lock.unlock();
  if (ended && threads_.waiters.load() > 0) team_.wake();
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
  if (threads_.asleep.load()) transport_->wake();
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
  if (plans_[std::size_t(plan)].queued(ops_)) ops_.wait_for_event(event_of(plan));
}

}  // namespace lockstep::collectives
