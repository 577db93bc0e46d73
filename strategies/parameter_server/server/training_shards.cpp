// SPDX-License-Identifier: MIT
// What does not change weights by gradients: checks, pulls, start values, snapshots. Pushes stand
// in training_pushes.cpp.
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
using engine::require;

namespace {

std::size_t bytes_of(const std::vector<rpc::Slice>& body) {
  std::size_t bytes = 0;
  for (const rpc::Slice& slice : body) bytes += slice.size;
  return bytes;
}

std::vector<Range> ranges_of(const std::vector<HeldPart>& parts, std::uint32_t shard) {
  std::vector<Range> ranges;
  for (const HeldPart& part : parts)
    if (part.shard == shard) ranges.push_back({part.begin, part.end});
  return ranges;
}

}  // namespace

void ShardCounts::add_staleness(std::uint64_t value) {
  ++steps;
  staleness_sum += value;
  staleness_most = std::max(staleness_most, value);
  ++staleness[std::min<std::uint64_t>(value, kHistogram - 1)];
}

TrainingShards::TrainingShards(std::string container, std::uint64_t generation, JobSpec spec,
                               const engine::Ops& ops, const MemoryBudget& budget,
                               MemoryBudget::Share share)
    : container_(std::move(container)),
      spec_(std::move(spec)),
      ops_(ops),
      budget_(budget),
      share_(std::move(share)),
      generation_(generation),
      contributions_(spec_.policy.needed()) {
  bool empty = true;
  for (const ShardSpec& shard : spec_.shards) {
    shards_.push_back(std::make_unique<HeldShard>(shard, spec_.rule, &budget_));
    if (!shard.frozen) units_ += shard.sparse ? 1 : shard.elements();
    empty = empty && shard.elements() == 0;
  }
  for (std::uint32_t worker = 0; worker < spec_.policy.workers; ++worker)
    workers_.emplace_back(std::make_unique<Worker>())->share = budget_.add(0);
  ready_ = empty;
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

std::string TrainingShards::name_of(std::uint32_t shard) const {
  return fmt::format("shard {} ({}) of container {}", shard, in_quotes(spec_.shards[shard].name),
                     in_quotes(container_));
}

void TrainingShards::check_parts(const std::vector<HeldPart>& parts) const {
  std::vector<HeldPart> sorted = parts;
  for (const HeldPart& part : parts) {
    require(part.shard < shards_.size(), "container {} has {} shards here, not one of number {}",
            in_quotes(container_), shards_.size(), part.shard);
    require(part.begin < part.end && part.end <= spec_.shards[part.shard].elements(),
            "elements {} to {} are none of the {} of {}", part.begin, part.end,
            spec_.shards[part.shard].elements(), name_of(part.shard));
  }
  std::sort(sorted.begin(), sorted.end(), [](const HeldPart& a, const HeldPart& b) {
    return a.shard != b.shard ? a.shard < b.shard : a.begin < b.begin;
  });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    require(sorted[i - 1].shard != sorted[i].shard || sorted[i - 1].end <= sorted[i].begin,
            "element {} of {} is asked for twice", sorted[i].begin, name_of(sorted[i].shard));
  }
}

void TrainingShards::check_rows(const ShardRows& rows) const {
  require(rows.shard < shards_.size(), "container {} has {} shards here, not one of number {}",
          in_quotes(container_), shards_.size(), rows.shard);
  const ShardSpec& shard = spec_.shards[rows.shard];
  // Texts are made where something is wrong alone: for each row they would take most of a push.
  for (std::size_t i = 0; i < rows.rows.size(); ++i) {
    const std::uint64_t row = rows.rows[i];
    if (row < shard.first_row || row - shard.first_row >= shard.rows) {
      engine::fail(Code::kInvalid, "row {} is none of the {} from row {} on of {}", row, shard.rows,
                   shard.first_row, name_of(rows.shard));
    }
    if (i > 0 && rows.rows[i - 1] >= row) {
      engine::fail(Code::kInvalid, "rows of {} must ascend, and {} stands before {}",
                   name_of(rows.shard), rows.rows[i - 1], row);
    }
  }
}

// Where closed, or of another generation: why. The mutex is held.
void TrainingShards::assignable(std::uint64_t generation) const {
  if (closed_) throw *closed_;
  if (generation != generation_) {
    engine::fail(Code::kUnavailable, "container {} is of generation {}, not {}",
                 in_quotes(container_), generation_, generation);
  }
  if (loading_) {
    engine::fail(Code::kUnavailable, "container {} is being restored", in_quotes(container_));
  }
}

void TrainingShards::usable(std::uint64_t generation) const {
  assignable(generation);
  if (!ready_) {
    engine::fail(Code::kUnavailable, "container {} has no values yet", in_quotes(container_));
  }
}

std::shared_lock<std::shared_mutex> TrainingShards::enter() {
  std::scoped_lock turn(turnstile_);
  return std::shared_lock(gate_);
}

// The shards of the parts, in one order, so that nobody waits in a circle; with memory for writing
// the parts.
TrainingShards::Locks TrainingShards::lock(const std::vector<HeldPart>& parts) {
  std::vector<std::uint32_t> numbers;
  for (const HeldPart& part : parts) numbers.push_back(part.shard);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  Locks locks;
  for (const std::uint32_t number : numbers) locks.emplace_back(shards_[number]->mutex);
  for (const std::uint32_t number : numbers) shards_[number]->reserve(ranges_of(parts, number));
  return locks;
}

// Of what a call keeps while it waits.
std::shared_ptr<MemoryBudget::Share> TrainingShards::share_of_call(
    const std::vector<HeldPart>& parts, std::size_t rows) const {
  constexpr std::size_t kOfCall = 1024;  // bytes beside its parts and rows
  return std::make_shared<MemoryBudget::Share>(
      budget_.take(kOfCall + parts.size() * sizeof(HeldPart) + rows * sizeof(std::uint64_t),
                   "a call to container " + in_quotes(container_)));
}

void TrainingShards::when_reached(std::int64_t version, std::uint64_t generation,
                                  CallerPointer caller, VersionWaiters::Continue go_on) {
  {
    std::scoped_lock lock(mutex_);
    usable(generation == 0 ? generation_ : generation);
    const bool never = spec_.policy.synchronous && units_ == 0;  // nothing here is ever updated
    if (version_ < version && !never) {
      waiters_.add(version, std::move(caller), std::move(go_on));
      return;
    }
  }
  go_on(nullptr);
}

void TrainingShards::pull(PullOrder order, CallerPointer caller, Answered done) {
  check_parts(order.parts);
  if (order.rows) check_rows(*order.rows);
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

// The version first: what changes while the weights are read is newer, not older, than it says.
void TrainingShards::answer(const PullOrder& order, ShardAnswer& result) {
  std::size_t rows = 0;
  try {
    result.version = version();
    for (const HeldPart& part : order.parts) {
      const HeldShard& shard = *shards_[part.shard];
      std::vector<rpc::Slice> slices;
      {
        std::shared_lock lock(shard.mutex);
        shard.weights.lend({part.begin, part.end}, slices);
      }
      if (order.bfloat16) slices = narrowed(slices, shard.spec.dtype);
      result.body.insert(result.body.end(), slices.begin(), slices.end());
    }
    if (order.rows && !order.rows->rows.empty()) {
      const HeldShard& shard = *shards_[order.rows->shard];
      rows = order.rows->rows.size();
      const std::size_t bytes = shard.spec.row_elements() * size_of(shard.spec.dtype);
      const auto memory = std::make_shared<std::vector<std::byte>>(rows * bytes);
      {
        std::shared_lock lock(shard.mutex);
        for (std::size_t i = 0; i < rows; ++i)
          shard.weights.copy(shard.row(order.rows->rows[i]), memory->data() + i * bytes);
      }
      std::vector<rpc::Slice> slices{{memory->data(), memory->size(), memory}};
      result.body = order.bfloat16 ? narrowed(slices, shard.spec.dtype) : std::move(slices);
    }
  } catch (const engine::Error& error) {
    result.error = error;
  } catch (const std::bad_alloc&) {
    result.error = engine::Error(Code::kIo, "no memory for an answer");
  }
  std::scoped_lock lock(mutex_);
  ++counts_.pulls;
  counts_.rows_pulled += rows;
  counts_.bytes_pulled += bytes_of(result.body);
}

std::int64_t TrainingShards::assign(std::uint64_t generation, const std::vector<HeldPart>& parts,
                                    const std::vector<rpc::Slice>& body) {
  check_parts(parts);
  budget_.check("assigning to container " + in_quotes(container_));
  std::size_t bytes = 0;
  for (const HeldPart& part : parts) bytes += part.size() * size_of(spec_.shards[part.shard].dtype);
  require(bytes_of(body) == bytes, "the parts have {} bytes, and {} came", bytes, bytes_of(body));
  {  // before the gate: nobody waits there for a restore
    std::scoped_lock lock(mutex_);
    assignable(generation);
  }
  const auto inside = enter();
  {
    std::scoped_lock lock(mutex_);
    assignable(generation);
  }
  ArrayReader reader(body, false);
  {
    const Locks locks = lock(parts);
    for (const HeldPart& part : parts) {
      HeldShard& shard = *shards_[part.shard];
      shard.assign({part.begin, part.end}, [&](Range block, std::vector<const std::byte*>& from) {
        from.assign(1, reader.next(block.size(), shard.spec.dtype));
      });
    }
  }
  const bool all = std::all_of(shards_.begin(), shards_.end(), [](const auto& shard) {
    std::shared_lock lock(shard->mutex);
    return shard->assigned.all(1);
  });
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
    Locks locks;
    for (const auto& shard : shards_) locks.emplace_back(shard->mutex);
    loaded = fill(shards_);
    for (const auto& shard : shards_) shard->assigned.set({0, shard->spec.elements()}, 1);
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
  const HeldShard& shard = *shards_[number];
  NamedVariables::Value value{{}, shard.spec.dtype, {}};
  for (std::size_t axis = 0; axis < shard.spec.shape.rank(); ++axis)
    value.shape.append(axis == 0 ? shard.spec.rows : shard.spec.shape[axis]);
  std::shared_lock lock(shard.mutex);
  shard.weights.lend({0, shard.spec.elements()}, value.body);
  return value;
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

ShardCounts TrainingShards::counts() const {
  std::scoped_lock lock(mutex_);
  return counts_;
}

std::vector<TrainingShards::WorkerState> TrainingShards::workers() const {
  std::vector<WorkerState> states;
  std::scoped_lock lock(mutex_);
  for (const auto& worker : workers_)
    states.push_back({worker->sequences.last(), worker->sequences.lost(), worker->at});
  return states;
}

std::size_t TrainingShards::waiting_calls() const {
  std::scoped_lock lock(mutex_);
  return waiters_.size();
}

std::size_t TrainingShards::waiting_parts() const {
  std::scoped_lock lock(mutex_);
  return contributions_.waiting();
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
  for (const auto& shard : shards_) {
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
  std::uint64_t sum = 0;
  const auto add = [&](std::uint64_t value) { sum = (sum + value) * kOdd; };
  for (const auto& shard : shards_) {
    std::shared_lock lock(shard->mutex);
    const auto add_array = [&](const ChunkedArray& array) {
      std::vector<rpc::Slice> slices;
      array.lend({0, shard->spec.elements()}, slices);
      for (const rpc::Slice& slice : slices) add(ops_.checksum(slice.data, slice.size, 0));
    };
    add_array(shard->weights);
    for (const ChunkedArray& slot : shard->slots) add_array(slot);
    for (const RangeValues* values : {&shard->updates, &shard->assigned}) {
      for (const RangeValues::Run& run : values->runs()) {
        add(run.range.begin);
        add(std::uint64_t(run.value));
      }
    }
    for (const std::int32_t updates : shard->row_updates) add(std::uint64_t(updates));
  }
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
