// SPDX-License-Identifier: MIT
#include "collectives/run/executor.h"

#include <fmt/core.h>

#include <algorithm>

#include "collectives/run/host_sum.h"

namespace lockstep::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// So many looks at a stuck step cost no look at the clock: most steps move within them.
constexpr int kFreeLooks = 32;
// Between two looks at a stuck step at most this much counts as waiting.
constexpr nanoseconds kAttention = milliseconds(100);
// A wait of so long may be one for a rank that is lost: others may want to know that this one is
// not. Waits of ranks that come together are over long before.
constexpr nanoseconds kLong = milliseconds(2);

// The element type of what a step reduces: norms are float64 whatever the plan's type.
DType reduced_type(const Step& step, DType plan) {
  return step.from[0].space == Space::kNorms ? DType::kFloat64 : plan;
}

}  // namespace

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
      presence_(rank, team, transport, options_.answer),
      deadline_(options_.deadline),
      owned_elements_(owned_.elements()),
      wakes_(transport != nullptr && transport->wake()) {
  engine::invariant(team.is_local(rank), "an executor's rank is not of its team");
  team.set_ops(rank, &ops);
  const bool finds = owned_.rule != nullptr && owned_.rule->needs() != engine::Needs::kNothing;
  if (!finds || owned_.memory.factors != nullptr) return;
  engine::invariant(ops.in_host_memory(), "an update on a device without memory for its factors");
  const std::size_t segments = owned_.segments.size();
  own_found_ = engine::Buffer(engine::UpdateMemory::bytes(segments));
  owned_.memory = engine::UpdateMemory::in(own_found_.data(), segments);
  owned_.memory.begin(*owned_.rule, owned_.segments);
}

void Executor::open(const StepPlan& step, engine::Buffer staging) {
  engine::invariant(entries_.empty(), "an executor is opened once");
  entries_ = std::vector<Entry>(step.size());
  std::size_t from = 0, to = 0;
  int mark = mark_of(int(step.size()));
  for (std::size_t i = 0; i < step.size(); ++i) {
    const Stage& stage = step[i];
    Entry& entry = entries_[i];
    entry.stage = &stage;
    entry.mine = &stage.plan.lanes[std::size_t(rank_)];
    entry.vendor = any_step(stage.plan, [](const Step& s) { return s.action == Action::kVendor; });
    engine::invariant(!entry.vendor || options_.vendor_sum, "a vendor's sum without the vendor");
    entry.updates =
        any_step(stage.plan, [](const Step& s) { return s.epilogue == Epilogue::kUpdate; });
    for (const auto& lanes : stage.plan.lanes) {
      auto& counts = entry.arrivals.emplace_back();
      for (const Lane& lane : lanes)
        counts.push_back(std::uint64_t(std::count_if(
            lane.begin(), lane.end(), [](const Step& s) { return s.action == Action::kArrive; })));
    }
    for (const Lane& lane : *entry.mine) {
      entry.cursors.emplace_back().posts.assign(lane.size(), -1);
      entry.cursors.back().mark = mark++;
      for (const Step& s : lane) {
        from = std::max(from, s.from.size()), to = std::max(to, s.to.size());
        engine::require(transport_ || s.peer < 0,
                        "{}: rank {} is to talk to rank {} on another host, without a transport",
                        stage.plan.name, rank_, s.peer);
      }
    }
  }
  from_.resize(from), to_.resize(to);
  turns_.reserve(engine::kMostTurns);
  const bool on_device = !ops_.in_host_memory();
  if (staging.bytes() == 0) staging = engine::Buffer(WireStaging::bytes(step, rank_, on_device));
  staging_ = WireStaging(step, rank_, on_device, std::move(staging));
  stream_updates_ = updated_bytes(step) > options_.cache;
  for (const bool first : {true, false})
    for (std::size_t i = 0; i < step.size(); ++i)
      if (step[i].first_in_line == first) order_.push_back(int(i));
}

void Executor::start(int plan, const engine::StepState* state) {
  Entry& entry = entries_[std::size_t(plan)];
  engine::invariant(done(plan), "a plan is started before its last execution has ended");
  entry.state.store(state, std::memory_order_relaxed);
  if (ExecutorObserver* observer = observer_) {
    entry.began = engine::Clock::now();
    observer->starts(plan);
  }
  // Libraries want the same calls in the same order of all ranks: that in which plans are started.
  if (entry.vendor) entry.turn = vendor_starts_++;
  entry.requested.fetch_add(1);
  wake();  // a communication thread that sleeps has something to do
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
  const bool crowded = crowded_;
  lock.unlock();
  if (ended && waiters_.load() > 0) team_.wake();  // who sleeps in `wait`
  return moved ? Looked::kMoved : crowded ? Looked::kCrowded : Looked::kStill;
}

// Everything that can go wrong in other hands (transport, kernels, hooks) stops the team here.
bool Executor::pass(int& budget, bool& ended, int plan) {
  at_ = nullptr;
  crowded_ = awaits_ = false;
  behind_device_.store(false, std::memory_order_relaxed);
  try {
    bool moved = messages_.load(std::memory_order_relaxed) > 0 && transport_->progress();
    if (plan != kAll) {
      moved |= move(plan, budget, ended);
    } else {
      for (const int one : order_) moved |= move(one, budget, ended);
    }
    if (moved) {  // only here, under the lock
      moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    return moved;
  } catch (const std::exception& e) {
    const engine::Error error = engine::as_error(e);
    // An error about a lost peer or a deadline says already where this rank waited.
    const bool told =
        error.code() == engine::Code::kPeerLost || error.code() == engine::Code::kTimeout;
    team_.stop(at_ && !told ? error.with(fmt::format("{}: {}", at_->stage->plan.name, error.what()))
                            : error);
  }
  return false;
}

// All lanes of a plan as far as they go. True when anything moved.
bool Executor::move(int plan, int& budget, bool& ended) {
  Entry& entry = entries_[std::size_t(plan)];
  const std::uint64_t execution = entry.completed.load(std::memory_order_relaxed);
  if (entry.requested.load() == execution) return false;
  for (const int earlier : entry.stage->after)
    if (entries_[std::size_t(earlier)].completed.load(std::memory_order_relaxed) <= execution)
      return false;
  at_ = &entry;
  if (entry.updates) find_factors(entry, execution + 1);
  bool moved = false, all = true;
  for (std::size_t lane = 0; lane < entry.cursors.size(); ++lane) {
    while (advance(entry, plan, int(lane), budget)) moved = true;
    all &= entry.cursors[lane].step == (*entry.mine)[lane].size();
  }
  if (!all) return moved;
  if (queued(entry)) ops_.mark(mark_of(plan));
  vendor_ends_ += entry.vendor;
  for (Cursor& cursor : entry.cursors) cursor.step = 0;
  if (ExecutorObserver* observer = observer_) {
    observer->completed(plan, entry.began, engine::Clock::now());
  }
  entry.completed.store(execution + 1);  // before looking for sleepers
  return ended = true;
}

// One step of a lane, or some blocks of a reduction. True when it moved. A lane moves one step
// after the other; reductions, and messages that are copied, cost budget, all else is short.
bool Executor::advance(Entry& entry, int plan, int lane, int& budget) {
  Cursor& cursor = entry.cursors[std::size_t(lane)];
  const Lane& steps = (*entry.mine)[std::size_t(lane)];
  if (cursor.step == steps.size()) return false;
  const Step& step = steps[cursor.step];
  switch (step.action) {
    case Action::kReduce:
      if (budget <= 0) return false;
      if (!reduce(entry, cursor, step, budget)) return true;
      break;
    case Action::kPostSend:
    case Action::kPostReceive:
    case Action::kWait: {
      const Went went = message(entry, cursor, steps, {plan, lane}, budget);
      if (went != Went::kThrough) return went == Went::kOn;
      break;
    }
    case Action::kArrive:
      if (queued(entry)) mark_arrival();
      team_.arrive(plan, rank_, lane);
      break;
    case Action::kAwait:
      if (!all_arrived(entry, plan, step)) {
        awaits_ = true;
        look(entry, plan, lane);
        return false;
      }
      if (queued(entry)) follow(step.ranks);
      break;
    case Action::kVendor:
      if (entry.turn != vendor_ends_) return false;
      options_.vendor_sum(address(entry, step.to[0], entry.stage->plan.dtype, 0), step.count,
                          entry.stage->plan.dtype);
      break;
  }
  ++cursor.step;
  cursor.looks = 0;
  cursor.waited = {};
  cursor.looked = {};
  cursor.late = {};
  return true;
}

// Who are missing are asked where they were last, until one was here.
bool Executor::all_arrived(const Entry& entry, int plan, const Step& await) {
  bool all = true;
  for (const int rank : await.ranks) {
    if (arrived(entry, plan, await, rank)) continue;
    all = false;
    if (rank != rank_ && team_.beside(rank)) crowded_ = true;
    if (crowded_) break;
  }
  return all;
}

bool Executor::queued(const Entry& entry) const {
  return !ops_.in_host_memory() && !entry.stage->by_host;
}

// Before it is counted: who sees the count finds the mark there.
void Executor::mark_arrival() const {
  ops_.mark(kArrivals);
  if (const engine::ProcessMark* mark = team_.mark(rank_)) mark->set(ops_);
}

// What these ranks have queued before they arrived comes before what this one queues now. Those of
// other processes have no ops here.
void Executor::follow(const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    if (rank == rank_) continue;
    if (const engine::Ops* theirs = team_.ops(rank)) {
      ops_.reduce_behind(*theirs, kArrivals);
    } else {
      team_.mark(rank)->hold_back(ops_);
    }
  }
}

bool Executor::arrived(const Entry& entry, int plan, const Step& await, int rank) const {
  const std::uint64_t before = entry.completed.load(std::memory_order_relaxed) *
                               entry.arrivals[std::size_t(rank)][std::size_t(await.lane)];
  return team_.counter(plan, rank, await.lane).load() >= before + std::uint64_t(await.phase);
}

// As many blocks as there is budget, so that `progress` comes back soon; blocks are counted from
// the arena's beginning. Squares go block by block in memory of the host; where segments of the
// arena are not alike, a call of a kernel is about one, but for updates on a device, where it goes
// on over those that differ in their decay alone. True when the step is done.
bool Executor::reduce(Entry& entry, Cursor& cursor, const Step& step, int& budget) {
  if (options_.hook) options_.hook();
  const DType dtype = reduced_type(step, entry.stage->plan.dtype);
  const std::size_t at = step.from[0].offset + cursor.element;
  const bool segments = by_segments(step);
  const bool squares = step.epilogue == Epilogue::kSquares;
  const bool single = options_.hook || (squares && ops_.in_host_memory());
  const std::size_t most = (single ? 1 : std::size_t(budget)) * engine::kBlock;
  const std::size_t count = std::min(step.count - cursor.element, most - at % engine::kBlock);
  budget -= int((at % engine::kBlock + count + engine::kBlock - 1) / engine::kBlock);
  engine::ReduceArguments arguments;
  arguments.dtype = dtype;
  arguments.op = entry.stage->plan.op;
  arguments.from = {from_.data(), step.from.size()};
  arguments.to = {to_.data(), step.to.size()};
  arguments.stream = streams(step, engine::size_of(dtype));
  arguments.read_ahead = reads_ahead();
  arguments.epilogue = step.epilogue;
  arguments.scale = step.scale;
  const std::size_t end = cursor.element + count;
  const bool by_host = !ops_.in_host_memory() && entry.stage->by_host;
  const bool joins = joins_segments(step) && !by_host;
  while (cursor.element < end) {
    const std::size_t here = step.from[0].offset + cursor.element;
    const std::size_t s = segments ? owned_.segment(here) : 0;
    arguments.count = end - cursor.element;
    if (joins) {
      arguments.count = join_segments(s, here, arguments.count);
      arguments.turns = turns_;
    } else if (segments) {
      arguments.count = std::min(arguments.count, owned_.segments[s].end - here);
    }
    if (segments && squares && here % engine::kBlock != 0)  // the rest of a block, and then blocks
      arguments.count = std::min(arguments.count, engine::kBlock - here % engine::kBlock);
    for (std::size_t i = 0; i < step.from.size(); ++i)
      from_[i] = address(entry, step.from[i], dtype, cursor.element);
    for (std::size_t i = 0; i < step.to.size(); ++i)
      to_[i] = address(entry, step.to[i], dtype, cursor.element);
    if (squares) arguments.squares = norms() + here / engine::kBlock;
    if (step.epilogue == Epilogue::kUpdate) update_arguments(entry, cursor, step, arguments);
    if (segments) segment_arguments(entry, s, here, arguments);
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

// What the updates of all ranks of this host touch in one step: gradients, weights, slots.
std::size_t Executor::updated_bytes(const StepPlan& step) const {
  if (owned_.rule == nullptr) return 0;
  std::size_t bytes = 0;
  for (const Stage& stage : step)
    for (const int rank : team_.local())
      for (const Lane& lane : stage.plan.lanes[std::size_t(rank)])
        for (const Step& s : lane)
          if (s.epilogue == Epilogue::kUpdate)
            bytes += s.count * (engine::size_of(stage.plan.dtype) * (s.from.size() + s.to.size()) +
                                engine::size_of(engine::computed_in(stage.plan.dtype)) *
                                    engine::values_kept(*owned_.rule, stage.plan.dtype));
  return bytes;
}

bool Executor::streams(const Step& step, std::size_t width) const {
  if (step.epilogue == Epilogue::kUpdate) return stream_updates_;
  if (step.count * width < options_.stream_from) return false;
  return std::none_of(step.to.begin(), step.to.end(), [&](const Operand& to) {
    return std::find(step.from.begin(), step.from.end(), to) != step.from.end();
  });
}

void Executor::update_arguments(Entry& entry, Cursor& cursor, const Step& step,
                                engine::ReduceArguments& arguments) {
  engine::invariant(owned_.rule, "a plan updates, and its executor has no rule");
  const DType dtype = entry.stage->plan.dtype;
  const std::size_t width = engine::size_of(engine::computed_in(dtype));
  const auto kept = [&](std::size_t k) {
    return owned_.slots + (k * owned_elements_ + cursor.owned + cursor.element) * width;
  };
  if (cursor.element == 0) cursor.owned = owned_.local(step.from[0].offset);
  arguments.rule = owned_.rule;
  arguments.state = entry.state.load(std::memory_order_relaxed);
  arguments.weight =
      address(entry, {rank_, Space::kWeight, step.from[0].offset}, dtype, cursor.element);
  for (std::size_t slot = 0; slot < owned_.rule->slots(); ++slot)
    arguments.slots[slot] = kept(slot);
  if (engine::has_master(dtype)) arguments.master = kept(owned_.rule->slots());
  arguments.scale = 1;
  arguments.factors = owned_.memory.factors;
}

// Before the first update of a step, on ranks that own nothing, too: all have the same. Queued
// where kernels are, behind the squares.
void Executor::find_factors(const Entry& entry, std::uint64_t execution) {
  if (owned_.memory.factors == nullptr || found_ == execution) return;
  found_ = execution;
  engine::FactorArguments arguments;
  arguments.rule = owned_.rule;
  arguments.state = entry.state.load(std::memory_order_relaxed);
  arguments.squares = norms();
  arguments.blocks = owned_.norm_blocks;
  arguments.segments = owned_.segments.size();
  arguments.memory = owned_.memory;
  ops_.find_factors(arguments);
}

double* Executor::norms() const {
  return reinterpret_cast<double*>(team_.base(rank_, Space::kNorms));
}

std::byte* Executor::address(const Entry& entry, const Operand& operand, DType dtype,
                             std::size_t element) const {
  std::size_t at = operand.offset + element;
  if (operand.space == Space::kScratch && entry.completed.load(std::memory_order_relaxed) % 2 != 0)
    at += entry.stage->plan.alternate;
  // Scratch of what the host adds beside a device is behind the numbers that are exchanged.
  const bool shared =
      operand.space == Space::kScratch && entry.stage->by_host && !ops_.in_host_memory();
  const std::size_t width =
      engine::size_of(operand.space == Space::kNorms ? DType::kFloat64 : dtype);
  return team_.base(operand.rank, shared ? Space::kExchange : operand.space) + at * width;
}

// The lane is stuck: counts how long somebody has watched it.
void Executor::look(Entry& entry, int plan, int lane) {
  Cursor& cursor = entry.cursors[std::size_t(lane)];
  if (++cursor.looks <= kFreeLooks) return;
  const auto now = engine::Clock::now();
  if (cursor.looked != engine::Clock::time_point{})
    cursor.waited += std::min<nanoseconds>(now - cursor.looked, kAttention);
  cursor.looked = now;
  if (cursor.waited < kLong) return;
  presence_.wait(plan, now);
  const milliseconds deadline = deadline_;
  const bool late = cursor.waited >= deadline;
  if (!late && !others_ask(plan, now)) {
    cursor.late = {};
    return;
  }
  if (cursor.late == engine::Clock::time_point{}) cursor.late = now;
  const auto waited = late ? deadline : std::chrono::duration_cast<milliseconds>(cursor.waited);
  blame(entry, lane, plan, waited, cursor.late, now);
}

// Whether other ranks ask whom this one waits for in the plan; in any, where what they ask about is
// not what it waits for.
bool Executor::others_ask(int plan, engine::Clock::time_point now) const {
  const std::optional<int> asked = presence_.asked(now);
  if (!asked || *asked == plan || std::size_t(*asked) >= entries_.size()) return bool(asked);
  const std::vector<Cursor>& cursors = entries_[std::size_t(*asked)].cursors;
  return std::none_of(cursors.begin(), cursors.end(),
                      [](const Cursor& c) { return c.waited >= kLong; });
}

}  // namespace lockstep::collectives
