// SPDX-License-Identifier: MIT
// Pushes: see training_shards.h.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/server/training_shards.h"

namespace lockstep::strategies {

using engine::require;

namespace {

// Returns the parts that a push changes. A sparse shard is one part.
std::vector<ShardRange> pushed_parts(const PushOrder& order, const JobSpec& spec) {
  if (!order.rows) return order.parts;
  return {{order.rows->shard, 0, spec.shards[order.rows->shard].elements()}};
}

}  // namespace

// Returns whether the push belongs to the worker's current or latest step. Messages may arrive
// after the step's last one.
bool TrainingShards::Worker::goes_on(const PushOrder& order) const {
  return began && pulled == order.pulled && step == order.step &&
         (ended == 0 || order.sequence < ended);
}

void TrainingShards::push(PushOrder order, CallerPointer caller, Answered done) {
  arrays_.check(order);
  budget_.check("a push to container " + engine::in_quotes(arrays_.container()));
  auto share = order.want_weights ? share_of_call(order.parts, 0) : nullptr;
  VersionWaiters::Taken ready;
  ShardAnswer result;
  // Checks before the gate, so that the call does not wait there for a restore.
  {
    std::scoped_lock lock(mutex_);
    usable(order.generation);
  }
  {
    const auto inside = enter();
    Worker& worker = *workers_[order.worker];
    std::scoped_lock one(worker.turn);
    result = arrays_.spec().policy.synchronous ? push_synchronous(order, worker, ready)
                                               : push_asynchronous(order, worker, ready);
  }
  if (result.error) {
    close(*result.error);
    return done(std::move(result));
  }
  for (auto& go_on : ready) go_on(nullptr);
  if (!order.want_weights) return done(std::move(result));
  PullOrder pull;
  pull.parts = std::move(order.parts);
  pull.bfloat16 = order.bfloat16;
  const std::int64_t after = arrays_.spec().policy.synchronous ? order.step + 1 : 0;
  auto go_on = [this, pull = std::move(pull), result = std::move(result), worker = order.worker,
                done, share = std::move(share)](const engine::Error* why) mutable {
    if (why != nullptr) {
      result.error = *why;
    } else {
      const std::int64_t seen = version_seen_by(worker);
      answer(pull, result);
      result.version = seen;
    }
    done(std::move(result));
  };
  try {
    when_reached(after, order.generation, std::move(caller), go_on);
  } catch (const engine::Error& error) {
    go_on(&error);
  }
}

// Returns the version including the worker's own unfinished step. The worker has its own pushes of
// that step, so they must not make it stale.
std::int64_t TrainingShards::version_seen_by(std::uint32_t number) const {
  const UpdatePolicy& policy = arrays_.spec().policy;
  std::scoped_lock lock(mutex_);
  const Worker& worker = *workers_[number];
  const bool dropped = policy.most_staleness > 0 && worker.staleness > policy.most_staleness;
  const bool under_way = worker.began && worker.ended == 0 && !dropped;
  return version_ + (under_way && !policy.synchronous ? 1 : 0);
}

ShardAnswer TrainingShards::push_asynchronous(const PushOrder& order, Worker& worker,
                                              VersionWaiters::Taken& ready) {
  const UpdatePolicy& policy = arrays_.spec().policy;
  ShardAnswer result;
  {
    std::scoped_lock lock(mutex_);
    usable(order.generation);
    if (worker.sequences.had(order.sequence)) {
      worker.at = engine::Clock::now();
      ++counts_.repeated;
      return {PushOutcome::kRepeated, version_, worker.staleness};
    }
    // A worker may know a newer version than a restored server; its staleness is 0.
    result.staleness = worker.goes_on(order)
                           ? worker.staleness
                           : std::uint64_t(std::max<std::int64_t>(0, version_ - order.pulled));
  }
  const bool dropped = policy.most_staleness > 0 && result.staleness > policy.most_staleness;
  if (!dropped)
    arrays_.update(order,
                   policy.scale_rate ? order.rate / (1 + double(result.staleness)) : order.rate);
  std::scoped_lock lock(mutex_);
  remember(order, worker, result);
  result.what = dropped ? PushOutcome::kTooStale : PushOutcome::kApplied;
  ++(dropped ? counts_.too_stale : counts_.applied);
  if (order.last && !dropped) ready = waiters_.take(++version_);
  result.version = version_;
  return result;
}

// Returns whether the push needs no gradients, because it is repeated or late. Requires the mutex.
bool TrainingShards::answered(const PushOrder& order, Worker& worker, ShardAnswer& result) {
  usable(order.generation);
  result.version = version_;
  if (worker.sequences.had(order.sequence)) {
    ++counts_.repeated;
    result.what = PushOutcome::kRepeated;
    return true;
  }
  require(order.step <= version_, "worker {} pushes for step {}; {} is the newest version",
          order.worker, order.step, version_);
  if (order.step == version_) return false;
  result.staleness = std::uint64_t(version_ - order.step);
  result.what = PushOutcome::kLate;
  ++counts_.late;
  remember(order, worker, result);
  return true;
}

// Records a push. Requires the mutex.
void TrainingShards::remember(const PushOrder& order, Worker& worker, const ShardAnswer& result) {
  constexpr std::uint64_t kOfRange = 64;  // bytes
  worker.sequences.add(order.sequence);
  worker.share.resize(worker.sequences.count() * kOfRange);
  worker.at = engine::Clock::now();
  counts_.bytes_pushed += rpc::bytes_of(order.body);
  if (order.rows) counts_.rows_pushed += order.rows->rows.size();
  if (!worker.goes_on(order)) {
    worker.began = true;
    worker.pulled = order.pulled;
    worker.step = order.step;
    worker.ended = 0;
    worker.staleness = result.staleness;
    counts_.add_staleness(result.staleness);
  }
  if (order.last) worker.ended = std::max(worker.ended, order.sequence);
}

// Returns the parts that these gradients complete. Requires the mutex.
std::vector<Contributions::Complete> TrainingShards::offer(
    const std::vector<ShardRange>& parts, std::vector<Contributions::Gradient> gradients,
    ShardAnswer& result) {
  std::vector<Contributions::Complete> complete;
  std::size_t kept = 0, late = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Contributions::Complete here;
    const auto what = contributions_.offer(parts[i], std::move(gradients[i]), here);
    if (what == Contributions::What::kComplete) complete.push_back(std::move(here));
    kept += what == Contributions::What::kKept;
    late += what == Contributions::What::kLate;
  }
  if (!complete.empty()) {
    result.what = PushOutcome::kApplied;
    ++counts_.applied;
  } else if (kept > 0 || parts.empty()) {
    result.what = PushOutcome::kKept;
    ++counts_.kept;
  } else {
    result.what = late > 0 ? PushOutcome::kLate : PushOutcome::kRepeated;
    ++(late > 0 ? counts_.late : counts_.repeated);
  }
  return complete;
}

ShardAnswer TrainingShards::push_synchronous(const PushOrder& order, Worker& worker,
                                             VersionWaiters::Taken& ready) {
  ShardAnswer result;
  {
    std::scoped_lock lock(mutex_);
    if (answered(order, worker, result)) return result;
  }
  const std::vector<ShardRange> parts = pushed_parts(order, arrays_.spec());
  std::vector<Contributions::Gradient> gradients = arrays_.keep(order, parts);
  std::vector<Contributions::Complete> complete;
  {
    std::scoped_lock lock(mutex_);
    if (answered(order, worker, result)) return result;  // the step may have ended meanwhile
    for (const ShardRange& part : parts) contributions_.check(part);
    remember(order, worker, result);
    complete = offer(parts, std::move(gradients), result);
  }
  if (complete.empty()) return result;
  std::size_t updates = 0;
  try {
    for (const Contributions::Complete& part : complete) {
      arrays_.update(part);
      updates += arrays_.updates_of(part.part);
    }
  } catch (const engine::Error& error) {
    // `push` closes the shards, because this step can neither end nor be undone.
    result.error = error;
    return result;
  } catch (const std::bad_alloc&) {
    result.error = engine::Error(engine::Code::kIo, "no memory for an update");
    return result;
  }
  std::scoped_lock lock(mutex_);
  updated_ += updates;
  if (updated_ == updates_per_step_) {
    updated_ = 0;
    contributions_.next_step();
    ready = waiters_.take(++version_);
  }
  result.version = version_;
  return result;
}

}  // namespace lockstep::strategies
