// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/shard_checkpoint.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/checkpoint/safetensors.h"

namespace lockstep::strategies {

using engine::Checkpoints;
using engine::Code;
using engine::DType;
using engine::Piece;
using engine::Range;
using engine::require;
using engine::Shape;

namespace {

using Table = std::vector<std::int64_t>;  // rows of three

constexpr std::size_t kMostRows = std::size_t(1) << 24;  // maximum rows of a table
constexpr std::string_view kUpdates = "updates";

bool counts_steps(const JobSpec& spec) {
  return spec.rule.kind != engine::UpdateKind::kSgd;
}

std::string shards_key(const JobSpec& spec) {
  std::string text;
  for (const ShardSpec& shard : spec.shards) {
    text += fmt::format("{} {} {} {} {}\n", shard.name, to_string(shard.shape), shard.first_row,
                        shard.rows, engine::name(shard.dtype));
  }
  return fmt::format("{:016x}", engine::hash(text));
}

Piece whole(const std::string& name, Shape shape, DType dtype, const void* data) {
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return {name, shape, dtype, {0, shape.elements()}, bytes};
}

// Returns the elements [begin, end) of the shard as a piece of its variable.
Piece piece_of(const std::string& name, const ShardSpec& shard, Range range,
               const std::byte* data) {
  const std::size_t first = shard.first_element();
  return {name,
          shard.shape,
          shard.dtype,
          {first + range.begin, first + range.end},
          const_cast<std::byte*>(data)};
}

std::string slot_name(const JobSpec& spec, std::size_t slot, const ShardSpec& shard) {
  return fmt::format("{}/{}", spec.rule.slot_name(slot), shard.name);
}

// Appends a shard's borrowed array, chunk by chunk.
void add_lent(const std::string& name, const ShardSpec& shard,
              const std::vector<rpc::Slice>& chunks, std::vector<Piece>& pieces) {
  std::size_t begin = 0;
  for (const rpc::Slice& chunk : chunks) {
    const std::size_t end = begin + chunk.size / size_of(shard.dtype);
    pieces.push_back(piece_of(name, shard, {begin, end}, chunk.data));
    begin = end;
  }
  if (chunks.empty()) pieces.push_back(piece_of(name, shard, {0, 0}, nullptr));
}

void add_writable(const std::string& name, const ShardSpec& shard, ChunkedArray& array,
                  std::vector<Piece>& pieces) {
  constexpr std::size_t kChunk = ChunkedArray::kChunk;
  for (std::size_t begin = 0; begin < array.elements(); begin += kChunk) {
    const Range chunk{begin, std::min(array.elements(), begin + kChunk)};
    pieces.push_back(piece_of(name, shard, chunk, array.writable(chunk)));
  }
}

// Reads the arrays of a checkpoint other than weights and slots.
class Tables {
 public:
  Tables(Checkpoints& checkpoints, std::int64_t step, std::span<const std::string> zero)
      : checkpoints_(checkpoints), step_(step) {
    for (Checkpoints::ArrayInfo& array : checkpoints.arrays(step)) {
      const bool skipped = std::any_of(zero.begin(), zero.end(), [&](const std::string& prefix) {
        return array.name.starts_with(prefix);
      });
      if (!skipped) arrays_.push_back(std::move(array));
    }
  }

  const Checkpoints::ArrayInfo* find(const std::string& name) const {
    const auto found = std::find_if(arrays_.begin(), arrays_.end(),
                                    [&](const auto& array) { return array.name == name; });
    return found == arrays_.end() ? nullptr : &*found;
  }
  const std::vector<Checkpoints::ArrayInfo>& all() const { return arrays_; }

  // Returns an empty table if the checkpoint has none.
  Table read(const std::string& name, std::size_t columns) const {
    const Checkpoints::ArrayInfo* array = find(name);
    if (array == nullptr) return {};
    const Shape& shape = array->shape;
    const bool table = shape.rank() == (columns == 1 ? 1 : 2) &&
                       (columns == 1 ? shape[0] == 1 : shape[1] == columns);
    if (!table || array->dtype != DType::kInt64 || shape[0] > kMostRows)
      corrupt(name, "has another form");
    Table values(shape.elements());
    const Piece piece[] = {whole(name, shape, DType::kInt64, values.data())};
    checkpoints_.restore(step_, piece);
    return values;
  }

  [[noreturn]] void corrupt(const std::string& name, std::string_view why) const {
    engine::fail(Code::kCorrupt, "{} in the checkpoint of step {} {}", engine::in_quotes(name),
                 step_, why);
  }
  std::int64_t step() const { return step_; }

 private:
  Checkpoints& checkpoints_;
  std::int64_t step_;
  std::vector<Checkpoints::ArrayInfo> arrays_;
};

// Returns the received push numbers, one table per worker.
std::vector<SequenceTable> read_pushes(const Tables& tables, const std::string& name,
                                       std::size_t workers) {
  const Table table = tables.read(name, 3);
  std::vector<SequenceTable::Ranges> ranges(workers);
  for (std::size_t i = 0; i < table.size(); i += 3) {
    const auto worker = std::uint64_t(table[i]);
    if (table[i + 2] > SequenceTable::kMost) tables.corrupt(name, "has a push of no number");
    if (worker < workers)
      ranges[worker].emplace_back(std::uint64_t(table[i + 1]), std::uint64_t(table[i + 2]));
  }
  std::vector<SequenceTable> result;
  for (const SequenceTable::Ranges& of_worker : ranges) result.emplace_back(of_worker);
  return result;
}

// Sets the updates of a dense shard from all tables of its variable; other elements get the
// checkpoint's step.
void read_updates(const Tables& tables, VariableShard& shard) {
  const std::size_t first = shard.spec.first_element(), elements = shard.spec.elements();
  shard.updates.set({0, elements}, tables.step());
  const std::string end_of_name = "/" + shard.spec.name;
  const std::string prefix = std::string(kUpdates) + ".";
  constexpr std::size_t kKey = 16;
  for (const Checkpoints::ArrayInfo& array : tables.all()) {
    const std::string& name = array.name;
    if (!name.starts_with(prefix) || name.size() != prefix.size() + kKey + end_of_name.size() ||
        !name.ends_with(end_of_name))
      continue;
    const Table table = tables.read(name, 3);
    for (std::size_t i = 0; i < table.size(); i += 3) {
      const std::int64_t begin = table[i], end = table[i + 1], updates = table[i + 2];
      if (begin < 0 || end < begin || end > std::int64_t(shard.spec.shape.elements()) ||
          updates < 0)
        tables.corrupt(name, "names elements that are not there");
      const std::size_t from = std::max(std::size_t(begin), first);
      const std::size_t to = std::min(std::size_t(end), first + elements);
      if (from < to) shard.updates.set({from - first, to - first}, updates);
    }
  }
}

// Sets the updates of a sparse shard's rows: appends a piece to fill, or uses the checkpoint's
// step.
void read_row_updates(const Tables& tables, VariableShard& shard, std::vector<Piece>& pieces) {
  const std::string name = fmt::format("{}/{}", kUpdates, shard.spec.name);
  const std::size_t first = shard.spec.first_row;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::fill(shard.row_updates.begin(), shard.row_updates.end(),
            std::int32_t(std::min(tables.step(), kMost)));
  if (tables.find(name) == nullptr || shard.row_updates.empty()) return;
  pieces.push_back({name,
                    {shard.spec.shape[0]},
                    DType::kInt32,
                    {first, first + shard.spec.rows},
                    reinterpret_cast<std::byte*>(shard.row_updates.data())});
}

}  // namespace

SavedShard save_shard(ShardStore& store, const std::string& container, std::uint64_t generation,
                      Checkpoints& checkpoints, std::int64_t step, int rank, int ranks) {
  const auto job = store.job(container);
  const JobSpec& spec = job->spec();
  const TrainingShards::Snapshot now = job->snapshot(generation);
  const std::string key = shards_key(spec);
  std::vector<Piece> pieces;
  // Tables by name: several shards of one variable write to the same table.
  std::map<std::string, Table> tables;
  for (std::size_t i = 0; i < spec.shards.size(); ++i) {
    const ShardSpec& shard = spec.shards[i];
    const TrainingShards::Snapshot::Held& held = now.shards[i];
    add_lent(shard.name, shard, held.weights, pieces);
    for (std::size_t slot = 0; slot < held.slots.size(); ++slot)
      add_lent(slot_name(spec, slot, shard), shard, held.slots[slot], pieces);
    if (shard.frozen || !counts_steps(spec) || shard.elements() == 0) continue;
    if (shard.sparse) {
      pieces.push_back(
          {fmt::format("{}/{}", kUpdates, shard.name),
           {shard.shape[0]},
           DType::kInt32,
           {shard.first_row, shard.first_row + shard.rows},
           reinterpret_cast<std::byte*>(const_cast<std::int32_t*>(held.row_updates.data()))});
      continue;
    }
    Table& updates = tables[fmt::format("{}.{}/{}", kUpdates, key, shard.name)];
    for (const RangeValues::Run& run : held.updates) {
      updates.push_back(std::int64_t(shard.first_element() + run.range.begin));
      updates.push_back(std::int64_t(shard.first_element() + run.range.end));
      updates.push_back(run.value);
    }
  }
  if (!spec.shards.empty()) {
    const std::string prefix = fmt::format("parameter_server.{}/", key);
    Table& pushes = tables[prefix + "pushes"];
    for (std::size_t worker = 0; worker < now.sequences.size(); ++worker) {
      for (const auto& [first, end] : now.sequences[worker])
        pushes.insert(pushes.end(), {std::int64_t(worker), std::int64_t(first), std::int64_t(end)});
    }
    pieces.push_back(whole(prefix + "version", {1}, DType::kInt64, &now.version));
  }
  for (const auto& [name, table] : tables)
    pieces.push_back(whole(name, {table.size() / 3, 3}, DType::kInt64, table.data()));
  return {checkpoints.write_shard(step, rank, ranks, pieces), now.version};
}

std::int64_t restore_shard(ShardStore& store, const std::string& container,
                           std::uint64_t generation, Checkpoints& checkpoints, std::int64_t step,
                           std::span<const std::string> zero) {
  const auto job = store.job(container);
  const std::uint64_t before = job->generation();
  require(generation >= before, "container {} is of generation {}; {} is not later",
          engine::in_quotes(container), before, generation);
  if (generation == before && job->ready() && job->restored() == step) return job->version();
  const JobSpec& spec = job->spec();
  const auto fill = [&](std::span<const std::unique_ptr<VariableShard>> shards) {
    const Tables tables(checkpoints, step, zero);
    std::vector<Piece> pieces;
    for (const auto& shard : shards) {
      add_writable(shard->spec.name, shard->spec, shard->weights, pieces);
      for (std::size_t slot = 0; slot < shard->slots.size(); ++slot)
        add_writable(slot_name(spec, slot, shard->spec), shard->spec, shard->slots[slot], pieces);
      if (shard->spec.frozen || !counts_steps(spec)) continue;
      shard->spec.sparse ? read_row_updates(tables, *shard, pieces) : read_updates(tables, *shard);
    }
    checkpoints.restore(step, pieces, zero);
    const std::string prefix = fmt::format("parameter_server.{}/", shards_key(spec));
    TrainingShards::Loaded loaded;
    const Table version = tables.read(prefix + "version", 1);
    loaded.version = version.empty() ? step : version[0];
    if (loaded.version < 0) tables.corrupt(prefix + "version", "is negative");
    loaded.sequences = read_pushes(tables, prefix + "pushes", spec.policy.workers);
    return loaded;
  };
  if (!job->ready()) {
    job->load(generation, step, fill);
    return job->version();
  }
  // The new job replaces the old one; until then both may use this much memory.
  const std::uint64_t memory = spec.memory();
  const auto next = std::make_shared<TrainingShards>(
      container, generation, spec, store.ops(), store.budget(),
      store.budget().take(memory, "a restore of container " + engine::in_quotes(container),
                          memory));
  next->load(generation, step, fill);
  store.replace(container, job, next);
  return next->version();
}

}  // namespace lockstep::strategies
