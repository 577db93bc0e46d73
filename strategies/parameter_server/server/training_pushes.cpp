// SPDX-License-Identifier: MIT
// Pushes: see training_shards.h.
#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/server/training_shards.h"

namespace lockstep::strategies {

using engine::Range;
using engine::require;

namespace {

// What a push changes: of a sparse shard, which is one part, all of it.
std::vector<HeldPart> pushed_parts(const PushOrder& order, const JobSpec& spec) {
  if (!order.rows) return order.parts;
  return {{order.rows->shard, 0, spec.shards[order.rows->shard].elements()}};
}

}  // namespace

void TrainingShards::check_push(const PushOrder& order) const {
  require(order.worker < workers_.size(), "worker {} pushes to container {}, which has {}",
          order.worker, engine::in_quotes(container_), workers_.size());
  require(order.sequence >= 1 && order.sequence < std::uint64_t(SequenceTable::kMost),
          "a push of number {}", order.sequence);
  require(std::isfinite(order.rate), "a push with a rate that is no number");
  require(order.pulled >= 0 && order.step >= 0, "a push of version {}, made from version {}",
          order.step, order.pulled);
  check_parts(order.parts);
  std::size_t bytes = 0;
  const auto add = [&](std::uint32_t number, std::size_t elements) {
    const ShardSpec& shard = spec_.shards[number];
    require(!shard.frozen, "{} is frozen", name_of(number));
    require(shard.sparse == order.rows.has_value(), "{} is {}", name_of(number),
            shard.sparse ? "pushed by rows" : "not pushed by rows");
    bytes += elements * wire_width(shard.dtype, order.bfloat16);
  };
  for (const HeldPart& part : order.parts) add(part.shard, part.size());
  if (order.rows) {
    require(order.parts.empty() && !order.want_weights, "a push of rows that has parts too");
    check_rows(*order.rows);
    add(order.rows->shard,
        order.rows->rows.size() * spec_.shards[order.rows->shard].row_elements());
  }
  std::size_t came = 0;
  for (const rpc::Slice& slice : order.body) came += slice.size;
  require(came == bytes, "the gradients of worker {}'s push have {} bytes, and {} came",
          order.worker, bytes, came);
}

// Is it of the step that the worker is in, or was in last? Messages may overtake the last one.
bool TrainingShards::Worker::goes_on(const PushOrder& order) const {
  return began && pulled == order.pulled && step == order.step &&
         (ended == 0 || order.sequence < ended);
}

void TrainingShards::push(PushOrder order, CallerPointer caller, Answered done) {
  check_push(order);
  budget_.check("a push to container " + engine::in_quotes(container_));
  auto share = order.want_weights ? share_of_call(order.parts, 0) : nullptr;
  VersionWaiters::Taken ready;
  ShardAnswer result;
  {  // before the gate: nobody waits there for a restore
    std::scoped_lock lock(mutex_);
    usable(order.generation);
  }
  {
    const auto inside = enter();
    Worker& worker = *workers_[order.worker];
    std::scoped_lock one(worker.turn);
    result = spec_.policy.synchronous ? push_synchronous(order, worker, ready)
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
  const std::int64_t after = spec_.policy.synchronous ? order.step + 1 : 0;
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

// The version with the worker's own step in it, where that is still on its way: it has what it
// pushed of that step itself, and is not to be called stale for it.
std::int64_t TrainingShards::version_seen_by(std::uint32_t number) const {
  const UpdatePolicy& policy = spec_.policy;
  std::scoped_lock lock(mutex_);
  const Worker& worker = *workers_[number];
  const bool dropped = policy.most_staleness > 0 && worker.staleness > policy.most_staleness;
  const bool under_way = worker.began && worker.ended == 0 && !dropped;
  return version_ + (under_way && !policy.synchronous ? 1 : 0);
}

ShardAnswer TrainingShards::push_asynchronous(const PushOrder& order, Worker& worker,
                                              VersionWaiters::Taken& ready) {
  const UpdatePolicy& policy = spec_.policy;
  ShardAnswer result;
  {
    std::scoped_lock lock(mutex_);
    usable(order.generation);
    if (worker.sequences.had(order.sequence)) {
      worker.at = engine::Clock::now();
      ++counts_.repeated;
      return {PushOutcome::kRepeated, version_, worker.staleness};
    }
    // A worker may know a newer version than a server that was restored since: nothing is stale.
    result.staleness = worker.goes_on(order)
                           ? worker.staleness
                           : std::uint64_t(std::max<std::int64_t>(0, version_ - order.pulled));
  }
  const bool dropped = policy.most_staleness > 0 && result.staleness > policy.most_staleness;
  if (!dropped)
    apply(order, policy.scale_rate ? order.rate / (1 + double(result.staleness)) : order.rate);
  std::scoped_lock lock(mutex_);
  remember(order, worker, result);
  result.what = dropped ? PushOutcome::kTooStale : PushOutcome::kApplied;
  ++(dropped ? counts_.too_stale : counts_.applied);
  if (order.last && !dropped) ready = waiters_.take(++version_);
  result.version = version_;
  return result;
}

void TrainingShards::apply(const PushOrder& order, double rate) {
  const UpdateTerms terms{&ops_, &spec_.rule, rate, 1};
  ArrayReader reader(order.body, order.bfloat16);
  static_assert(HeldShard::kBlock <= ArrayReader::kMost);
  const auto update = [&](HeldShard& shard, Range range) {
    shard.update(
        range,
        [&](Range block, std::vector<const std::byte*>& from) {
          from.assign(1, reader.next(block.size(), shard.spec.dtype));
        },
        terms);
    shard.count_update(range);
  };
  if (!order.rows) {
    const Locks locks = lock(order.parts);
    for (const HeldPart& part : order.parts) update(*shards_[part.shard], {part.begin, part.end});
    return;
  }
  HeldShard& shard = *shards_[order.rows->shard];
  std::vector<Range> ranges;
  for (const std::uint64_t row : order.rows->rows) ranges.push_back(shard.row(row));
  std::scoped_lock lock(shard.mutex);
  shard.reserve(ranges);
  for (const Range range : ranges) update(shard, range);
}

// Whether the answer needs no gradients: it came before, or too late. The mutex is held.
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

// That the push came. The mutex is held.
void TrainingShards::remember(const PushOrder& order, Worker& worker, const ShardAnswer& result) {
  constexpr std::uint64_t kOfRange = 64;  // bytes
  worker.sequences.add(order.sequence);
  worker.share.resize(worker.sequences.count() * kOfRange);
  worker.at = engine::Clock::now();
  for (const rpc::Slice& slice : order.body) counts_.bytes_pushed += slice.size;
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

std::vector<Contributions::Gradient> TrainingShards::keep(const PushOrder& order,
                                                          const std::vector<HeldPart>& parts) {
  std::vector<Contributions::Gradient> gradients;
  ArrayReader reader(order.body, order.bfloat16);
  for (const HeldPart& part : parts) {
    const ShardSpec& shard = spec_.shards[part.shard];
    Contributions::Gradient& gradient = gradients.emplace_back();
    gradient.worker = order.worker;
    gradient.rate = order.rate;
    std::size_t elements = part.size();
    if (order.rows) {
      gradient.rows = std::make_shared<std::vector<std::uint64_t>>(order.rows->rows);
      elements = order.rows->rows.size() * shard.row_elements();
    }
    // It stays until those of other workers have come.
    struct Kept {
      MemoryBudget::Share share;
      std::shared_ptr<const std::byte> values;
    };
    const auto kept = std::make_shared<Kept>();
    kept->share =
        budget_.take(elements * size_of(shard.dtype) +
                         (order.rows ? order.rows->rows.size() * sizeof(std::uint64_t) : 0),
                     "a gradient of container " + engine::in_quotes(container_));
    kept->values = reader.keep(elements, shard.dtype);
    gradient.values = {kept, kept->values.get()};
  }
  return gradients;
}

// Those parts that are complete with it. The mutex is held.
std::vector<Contributions::Complete> TrainingShards::offer(
    const std::vector<HeldPart>& parts, std::vector<Contributions::Gradient> gradients,
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
  const std::vector<HeldPart> parts = pushed_parts(order, spec_);
  std::vector<Contributions::Gradient> gradients = keep(order, parts);
  std::vector<Contributions::Complete> complete;
  {
    std::scoped_lock lock(mutex_);
    if (answered(order, worker, result)) return result;  // the step may have ended meanwhile
    for (const HeldPart& part : parts) contributions_.check(part);
    remember(order, worker, result);
    complete = offer(parts, std::move(gradients), result);
  }
  if (complete.empty()) return result;
  std::size_t units = 0;
  try {
    for (const Contributions::Complete& part : complete) {
      update(part);
      units += spec_.shards[part.part.shard].sparse ? 1 : part.part.size();
    }
  } catch (const engine::Error& error) {
    result.error = error;  // `push` closes the shards: this step can neither end nor be taken back
    return result;
  } catch (const std::bad_alloc&) {
    result.error = engine::Error(engine::Code::kIo, "no memory for an update");
    return result;
  }
  std::scoped_lock lock(mutex_);
  updated_ += units;
  if (updated_ == units_) {
    updated_ = 0;
    contributions_.next_step();
    ready = waiters_.take(++version_);
  }
  result.version = version_;
  return result;
}

void TrainingShards::update(const Contributions::Complete& complete) {
  const HeldPart& part = complete.part;
  HeldShard& shard = *shards_[part.shard];
  const UpdatePolicy& policy = spec_.policy;
  const UpdateTerms terms{&ops_, &spec_.rule, complete.gradients[0].rate,
                          double(policy.workers) / double(policy.needed())};
  if (shard.spec.sparse) return update_rows(shard, complete, terms);
  const Locks locks = lock({part});
  const std::size_t width = size_of(shard.spec.dtype);
  shard.update(
      {part.begin, part.end},
      [&](Range block, std::vector<const std::byte*>& from) {
        from.clear();
        for (const Contributions::Gradient& gradient : complete.gradients)
          from.push_back(gradient.values.get() + (block.begin - part.begin) * width);
      },
      terms);
  shard.count_update({part.begin, part.end});
}

// Rows ascend in each gradient: one pass over all of them. A row's gradients are those that have
// it; the others' are zero.
void TrainingShards::update_rows(HeldShard& shard, const Contributions::Complete& complete,
                                 const UpdateTerms& terms) {
  const auto& gradients = complete.gradients;
  const std::size_t width = size_of(shard.spec.dtype), row_elements = shard.spec.row_elements();
  std::vector<std::uint64_t> rows;
  for (const auto& gradient : gradients)
    rows.insert(rows.end(), gradient.rows->begin(), gradient.rows->end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::vector<Range> ranges;
  for (const std::uint64_t row : rows) ranges.push_back(shard.row(row));
  std::scoped_lock lock(shard.mutex);
  shard.reserve(ranges);
  std::vector<std::size_t> next(gradients.size(), 0);
  std::vector<const std::byte*> of_row;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    of_row.clear();
    for (std::size_t g = 0; g < gradients.size(); ++g) {
      if (next[g] == gradients[g].rows->size() || (*gradients[g].rows)[next[g]] != rows[i])
        continue;
      of_row.push_back(gradients[g].values.get() + next[g]++ * row_elements * width);
    }
    shard.update(
        ranges[i],
        [&](Range block, std::vector<const std::byte*>& from) {
          from = of_row;
          for (const std::byte*& values : from) values += (block.begin - ranges[i].begin) * width;
        },
        terms);
    shard.count_update(ranges[i]);
  }
}

}  // namespace lockstep::strategies
