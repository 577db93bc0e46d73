// SPDX-License-Identifier: MIT
// Pulls, start values, restores and snapshots. Pushes are in training_pushes.cpp.
#include "strategies/parameter_server/server/training_shards.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"

namespace lockstep::strategies {

using engine::Code;
using engine::in_quotes;
using engine::Range;

void ShardCounts::add_staleness(std::uint64_t value) {
  ++steps;
  staleness_sum += value;
  staleness_most = std::max(staleness_most, value);
  ++staleness[std::min<std::uint64_t>(value, kHistogram - 1)];
}

TrainingShards::TrainingShards(std::string container, std::uint64_t generation, JobSpec spec,
                               const engine::Ops& ops, const MemoryBudget& budget,
                               MemoryBudget::Share share)
    : budget_(budget),
      share_(std::move(share)),
      arrays_(std::move(container), std::move(spec), ops, budget),
      updates_per_step_(arrays_.updates_per_step()),
      generation_(generation),
      ready_(arrays_.have_values()),
      contributions_(arrays_.spec().policy.needed()) {
  for (std::uint32_t worker = 0; worker < arrays_.spec().policy.workers; ++worker)
    workers_.emplace_back(std::make_unique<Worker>())->share = budget_.add(0);
}

std::uint64_t TrainingShards::generation() const {
  std::scoped_lock lock(mutex_);
  return generation_;
}

std::int64_t TrainingShards::version() const {
  std::scoped_lock lock(mutex_);
  return version_;
}

bool TrainingShards::ready() const {
  std::scoped_lock lock(mutex_);
  return ready_;
}

// Throws if the job is closed, or of another generation. Requires the mutex.
void TrainingShards::assignable(std::uint64_t generation) const {
  if (closed_) throw *closed_;
  if (generation != generation_) {
    engine::fail(Code::kUnavailable, "container {} is of generation {}, not {}",
                 in_quotes(arrays_.container()), generation_, generation);
  }
  if (loading_) {
    engine::fail(Code::kUnavailable, "container {} is being restored",
                 in_quotes(arrays_.container()));
  }
}

void TrainingShards::usable(std::uint64_t generation) const {
  assignable(generation);
  if (!ready_) {
    engine::fail(Code::kUnavailable, "container {} has no values yet",
                 in_quotes(arrays_.container()));
  }
}

std::shared_lock<std::shared_mutex> TrainingShards::enter() {
  std::scoped_lock turn(turnstile_);
  return std::shared_lock(gate_);
}

// Takes memory of the budget for a call that may wait.
std::shared_ptr<MemoryBudget::Share> TrainingShards::share_of_call(
    const std::vector<ShardRange>& parts, std::size_t rows) const {
  constexpr std::size_t kOfCall = 1024;  // bytes besides its parts and rows
  return std::make_shared<MemoryBudget::Share>(
      budget_.take(kOfCall + parts.size() * sizeof(ShardRange) + rows * sizeof(std::uint64_t),
                   "a call to container " + in_quotes(arrays_.container())));
}

void TrainingShards::when_reached(std::int64_t version, std::uint64_t generation,
                                  CallerPointer caller, VersionWaiters::Continue go_on) {
  {
    std::scoped_lock lock(mutex_);
    usable(generation == 0 ? generation_ : generation);
    const bool never = arrays_.spec().policy.synchronous &&
                       updates_per_step_ == 0;  // no shard here is ever updated
    if (version_ < version && !never) {
      waiters_.add(version, std::move(caller), std::move(go_on));
      return;
    }
  }
  go_on(nullptr);
}

void TrainingShards::pull(PullOrder order, CallerPointer caller, Answered done) {
  arrays_.check(order.parts);
  if (order.rows) arrays_.check(*order.rows);
  const std::int64_t at_least = order.at_least;
  const std::uint64_t generation = order.generation;
  auto share = share_of_call(order.parts, order.rows ? order.rows->rows.size() : 0);
  when_reached(at_least, generation, std::move(caller),
               [this, order = std::move(order), done = std::move(done),
                share = std::move(share)](const engine::Error* why) {
                 ShardAnswer result;
                 if (why != nullptr) {
                   result.error = *why;
                 } else {
                   answer(order, result);
                 }
                 done(std::move(result));
               });
}

// Reads the version first: values that change during the read are newer than it, not older.
void TrainingShards::answer(const PullOrder& order, ShardAnswer& result) {
  try {
    result.version = version();
    result.body = order.rows ? arrays_.read(*order.rows, order.bfloat16)
                             : arrays_.read(order.parts, order.bfloat16);
  } catch (const engine::Error& error) {
    result.error = error;
  } catch (const std::bad_alloc&) {
    result.error = engine::Error(Code::kIo, "no memory for an answer");
  }
  std::scoped_lock lock(mutex_);
  ++counts_.pulls;
  if (order.rows && !result.error) counts_.rows_pulled += order.rows->rows.size();
  counts_.bytes_pulled += rpc::bytes_of(result.body);
}

std::int64_t TrainingShards::assign(std::uint64_t generation, const std::vector<ShardRange>& parts,
                                    const std::vector<rpc::Slice>& body) {
  arrays_.check(parts, body);
  budget_.check("assigning to container " + in_quotes(arrays_.container()));
  // Checks before the gate, so that the call does not wait there for a restore.
  {
    std::scoped_lock lock(mutex_);
    assignable(generation);
  }
  const auto inside = enter();
  {
    std::scoped_lock lock(mutex_);
    assignable(generation);
  }
  arrays_.assign(parts, body);
  const bool all = arrays_.have_values();
  std::scoped_lock lock(mutex_);
  ready_ = ready_ || all;
  return version_;
}

void TrainingShards::load(std::uint64_t generation, std::int64_t restored, const Fill& fill) {
  {
    std::scoped_lock lock(mutex_);
    if (closed_) throw *closed_;
    engine::invariant(!ready_, "values are loaded over values");
    assignable(generation_);
    loading_ = true;
  }
  Loaded loaded;
  try {
    std::scoped_lock turn(turnstile_);
    std::scoped_lock alone(gate_);
    std::vector<std::unique_lock<std::shared_mutex>> locks;
    for (const auto& shard : arrays_.all()) locks.emplace_back(shard->mutex);
    loaded = fill(arrays_.all());
    for (const auto& shard : arrays_.all()) shard->assigned.set({0, shard->spec.elements()}, 1);
  } catch (...) {
    std::scoped_lock lock(mutex_);
    loading_ = false;
    throw;
  }
  std::scoped_lock lock(mutex_);
  loading_ = false;
  if (closed_) throw *closed_;
  ready_ = true;
  generation_ = generation;
  restored_ = restored;
  version_ = loaded.version;
  const std::size_t known = std::min(workers_.size(), loaded.sequences.size());
  for (std::size_t worker = 0; worker < known; ++worker)
    workers_[worker]->sequences = std::move(loaded.sequences[worker]);
}

std::optional<std::int64_t> TrainingShards::restored() const {
  std::scoped_lock lock(mutex_);
  return restored_;
}

NamedVariables::Value TrainingShards::read(std::size_t number) const {
  {
    std::scoped_lock lock(mutex_);
    usable(generation_);
  }
  return arrays_.read(number);
}

void TrainingShards::close(const engine::Error& why) {
  VersionWaiters::Taken taken;
  {
    std::scoped_lock lock(mutex_);
    if (!closed_) closed_ = why;
    taken = waiters_.take_all();
  }
  for (auto& go_on : taken) go_on(&why);
}

void TrainingShards::drop_gone() {
  VersionWaiters::Taken taken;
  {
    std::scoped_lock lock(mutex_);
    taken = waiters_.take_gone();
  }
  const engine::Error why(Code::kTimeout, "the caller does not wait any more");
  for (auto& go_on : taken) go_on(&why);
}

TrainingShards::Status TrainingShards::status() const {
  std::scoped_lock lock(mutex_);
  Status status{
      generation_, version_, ready_, counts_, {}, waiters_.size(), contributions_.waiting()};
  for (const auto& worker : workers_)
    status.workers.push_back({worker->sequences.last(), worker->sequences.lost(), worker->at});
  return status;
}

TrainingShards::Snapshot TrainingShards::snapshot(std::uint64_t generation) {
  std::scoped_lock turn(turnstile_);
  std::scoped_lock alone(gate_);
  Snapshot snapshot;
  {
    std::scoped_lock lock(mutex_);
    usable(generation == 0 ? generation_ : generation);
    snapshot.version = version_;
    for (const auto& worker : workers_) snapshot.sequences.push_back(worker->sequences.ranges());
  }
  for (const auto& shard : arrays_.all()) {
    std::shared_lock lock(shard->mutex);
    const Range all{0, shard->spec.elements()};
    Snapshot::Held& held = snapshot.shards.emplace_back();
    shard->weights.lend(all, held.weights);
    for (const ChunkedArray& slot : shard->slots) slot.lend(all, held.slots.emplace_back());
    if (!shard->spec.sparse) held.updates = shard->updates.runs();
    held.row_updates = shard->row_updates;
  }
  return snapshot;
}

std::uint64_t TrainingShards::checksum() {
  std::scoped_lock turn(turnstile_);
  std::scoped_lock alone(gate_);
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t sum = arrays_.checksum();
  const auto add = [&](std::uint64_t value) { sum = (sum + value) * kOdd; };
  std::scoped_lock lock(mutex_);
  add(generation_);
  add(std::uint64_t(version_));
  add(contributions_.waiting());
  for (const auto& worker : workers_) {
    for (const auto& [first, end] : worker->sequences.ranges()) {
      add(first);
      add(end);
    }
  }
  return sum;
}

}  // namespace lockstep::strategies
