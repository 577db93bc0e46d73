// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/shard_arrays.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/rpc/array_reader.h"
#include "strategies/parameter_server/rpc/sequence_table.h"

namespace lockstep::strategies {

using engine::Code;
using engine::in_quotes;
using engine::Range;
using engine::require;

namespace {

std::vector<Range> ranges_of(const std::vector<ShardRange>& all, std::uint32_t shard) {
  std::vector<Range> ranges;
  for (const ShardRange& range : all)
    if (range.shard == shard) ranges.push_back({range.begin, range.end});
  return ranges;
}

std::vector<Range> ranges_of(const VariableShard& shard, const std::vector<std::uint64_t>& rows) {
  std::vector<Range> ranges;
  for (const std::uint64_t row : rows) ranges.push_back(shard.row(row));
  return ranges;
}

}  // namespace

ShardArrays::ShardArrays(std::string container, JobSpec spec, const engine::Ops& ops,
                         const MemoryBudget& budget)
    : container_(std::move(container)), spec_(std::move(spec)), ops_(ops), budget_(budget) {
  for (const ShardSpec& shard : spec_.shards)
    shards_.push_back(std::make_unique<VariableShard>(shard, spec_.rule, &budget_));
}

std::size_t ShardArrays::updates_per_step() const {
  std::size_t updates = 0;
  for (const ShardSpec& shard : spec_.shards)
    if (!shard.frozen) updates += shard.sparse ? 1 : shard.elements();
  return updates;
}

std::size_t ShardArrays::updates_of(const ShardRange& range) const {
  return spec_.shards[range.shard].sparse ? 1 : range.size();
}

bool ShardArrays::have_values() const {
  return std::ranges::all_of(shards_, [](const auto& shard) {
    std::shared_lock lock(shard->mutex);
    return shard->assigned.all(1);
  });
}

std::string ShardArrays::name_of(std::uint32_t shard) const {
  return fmt::format("shard {} ({}) of container {}", shard, in_quotes(spec_.shards[shard].name),
                     in_quotes(container_));
}

void ShardArrays::check(const std::vector<ShardRange>& ranges) const {
  for (const ShardRange& range : ranges) {
    require(range.shard < shards_.size(), "container {} has {} shards here, not one of number {}",
            in_quotes(container_), shards_.size(), range.shard);
    require(range.begin < range.end && range.end <= spec_.shards[range.shard].elements(),
            "elements {} to {} are none of the {} of {}", range.begin, range.end,
            spec_.shards[range.shard].elements(), name_of(range.shard));
  }
  std::vector<ShardRange> sorted = ranges;
  std::ranges::sort(sorted, {},
                    [](const ShardRange& range) { return std::pair(range.shard, range.begin); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    require(sorted[i - 1].shard != sorted[i].shard || sorted[i - 1].end <= sorted[i].begin,
            "element {} of {} is asked for twice", sorted[i].begin, name_of(sorted[i].shard));
  }
}

void ShardArrays::check(const std::vector<ShardRange>& ranges,
                        const std::vector<rpc::Slice>& body) const {
  check(ranges);
  std::size_t bytes = 0;
  for (const ShardRange& range : ranges)
    bytes += range.size() * size_of(spec_.shards[range.shard].dtype);
  require(rpc::bytes_of(body) == bytes, "the parts have {} bytes, and {} came", bytes,
          rpc::bytes_of(body));
}

void ShardArrays::check(const ShardRows& rows) const {
  require(rows.shard < shards_.size(), "container {} has {} shards here, not one of number {}",
          in_quotes(container_), shards_.size(), rows.shard);
  const ShardSpec& shard = spec_.shards[rows.shard];
  // `require` would format its message for every row, which would take most of a push's time.
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

void ShardArrays::check(const PushOrder& push) const {
  require(push.worker < spec_.policy.workers, "worker {} pushes to container {}, which has {}",
          push.worker, in_quotes(container_), spec_.policy.workers);
  require(push.sequence >= 1 && push.sequence < std::uint64_t(SequenceTable::kMost),
          "a push of number {}", push.sequence);
  require(std::isfinite(push.rate), "a push with a rate that is no number");
  require(push.pulled >= 0 && push.step >= 0, "a push of version {}, made from version {}",
          push.step, push.pulled);
  check(push.parts);
  std::size_t bytes = 0;
  const auto add = [&](std::uint32_t number, std::size_t elements) {
    const ShardSpec& shard = spec_.shards[number];
    require(!shard.frozen, "{} is frozen", name_of(number));
    require(shard.sparse == push.rows.has_value(), "{} is {}", name_of(number),
            shard.sparse ? "pushed by rows" : "not pushed by rows");
    bytes += elements * wire_width(shard.dtype, push.bfloat16);
  };
  for (const ShardRange& range : push.parts) add(range.shard, range.size());
  if (push.rows) {
    require(push.parts.empty() && !push.want_weights, "a push of rows that has parts too");
    check(*push.rows);
    add(push.rows->shard, push.rows->rows.size() * spec_.shards[push.rows->shard].row_elements());
  }
  const std::size_t came = rpc::bytes_of(push.body);
  require(came == bytes, "the gradients of worker {}'s push have {} bytes, and {} came",
          push.worker, bytes, came);
}

std::vector<rpc::Slice> ShardArrays::read(const std::vector<ShardRange>& ranges,
                                          bool bfloat16) const {
  std::vector<rpc::Slice> values;
  for (const ShardRange& range : ranges) {
    const VariableShard& shard = *shards_[range.shard];
    std::vector<rpc::Slice> slices;
    {
      std::shared_lock lock(shard.mutex);
      shard.weights.lend({range.begin, range.end}, slices);
    }
    if (bfloat16) slices = narrowed(slices, shard.spec.dtype);
    values.insert(values.end(), slices.begin(), slices.end());
  }
  return values;
}

std::vector<rpc::Slice> ShardArrays::read(const ShardRows& rows, bool bfloat16) const {
  if (rows.rows.empty()) return {};
  const VariableShard& shard = *shards_[rows.shard];
  const std::size_t bytes = shard.spec.row_elements() * size_of(shard.spec.dtype);
  const auto memory = std::make_shared<std::vector<std::byte>>(rows.rows.size() * bytes);
  {
    std::shared_lock lock(shard.mutex);
    for (std::size_t i = 0; i < rows.rows.size(); ++i)
      shard.weights.copy(shard.row(rows.rows[i]), memory->data() + i * bytes);
  }
  std::vector<rpc::Slice> values{{memory->data(), memory->size(), memory}};
  return bfloat16 ? narrowed(values, shard.spec.dtype) : values;
}

NamedVariables::Value ShardArrays::read(std::size_t number) const {
  const VariableShard& shard = *shards_[number];
  NamedVariables::Value value{{}, shard.spec.dtype, {}};
  for (std::size_t axis = 0; axis < shard.spec.shape.rank(); ++axis)
    value.shape.append(axis == 0 ? shard.spec.rows : shard.spec.shape[axis]);
  std::shared_lock lock(shard.mutex);
  shard.weights.lend({0, shard.spec.elements()}, value.body);
  return value;
}

void ShardArrays::assign(const std::vector<ShardRange>& ranges,
                         const std::vector<rpc::Slice>& body) {
  ArrayReader reader(body, false);
  const Locks locks = lock(ranges);
  for (const ShardRange& range : ranges) {
    VariableShard& shard = *shards_[range.shard];
    shard.assign({range.begin, range.end}, [&](Range block, std::vector<const std::byte*>& from) {
      from.assign(1, reader.next(block.size(), shard.spec.dtype));
    });
  }
}

// Locks the shards of the ranges in ascending order, and reserves memory for writing the ranges.
ShardArrays::Locks ShardArrays::lock(const std::vector<ShardRange>& ranges) {
  std::set<std::uint32_t> numbers;
  for (const ShardRange& range : ranges) numbers.insert(range.shard);
  Locks locks;
  for (const std::uint32_t number : numbers) locks.emplace_back(shards_[number]->mutex);
  for (const std::uint32_t number : numbers) shards_[number]->reserve(ranges_of(ranges, number));
  return locks;
}

std::vector<Contributions::Gradient> ShardArrays::keep(
    const PushOrder& push, const std::vector<ShardRange>& ranges) const {
  std::vector<Contributions::Gradient> gradients;
  ArrayReader reader(push.body, push.bfloat16);
  for (const ShardRange& range : ranges) {
    const ShardSpec& shard = spec_.shards[range.shard];
    Contributions::Gradient& gradient = gradients.emplace_back();
    gradient.worker = push.worker;
    gradient.rate = push.rate;
    std::size_t elements = range.size();
    if (push.rows) {
      gradient.rows = std::make_shared<std::vector<std::uint64_t>>(push.rows->rows);
      elements = push.rows->rows.size() * shard.row_elements();
    }
    struct Kept {
      MemoryBudget::Share share;
      std::shared_ptr<const std::byte> values;
    };
    const auto kept = std::make_shared<Kept>();
    kept->share = budget_.take(elements * size_of(shard.dtype) +
                                   (push.rows ? push.rows->rows.size() * sizeof(std::uint64_t) : 0),
                               "a gradient of container " + in_quotes(container_));
    kept->values = reader.keep(elements, shard.dtype);
    gradient.values = {kept, kept->values.get()};
  }
  return gradients;
}

void ShardArrays::update(const PushOrder& push, double rate) {
  const UpdateTerms terms{&ops_, &spec_.rule, rate, 1};
  ArrayReader reader(push.body, push.bfloat16);
  static_assert(VariableShard::kBlock <= ArrayReader::kMost);
  const auto update = [&](VariableShard& shard, Range range) {
    shard.update(
        range,
        [&](Range block, std::vector<const std::byte*>& from) {
          from.assign(1, reader.next(block.size(), shard.spec.dtype));
        },
        terms);
    shard.count_update(range);
  };
  if (!push.rows) {
    const Locks locks = lock(push.parts);
    for (const ShardRange& range : push.parts)
      update(*shards_[range.shard], {range.begin, range.end});
    return;
  }
  VariableShard& shard = *shards_[push.rows->shard];
  const std::vector<Range> ranges = ranges_of(shard, push.rows->rows);
  std::scoped_lock lock(shard.mutex);
  shard.reserve(ranges);
  for (const Range range : ranges) update(shard, range);
}

void ShardArrays::update(const Contributions::Complete& complete) {
  const ShardRange& part = complete.part;
  VariableShard& shard = *shards_[part.shard];
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

// Updates each row with the sum of the gradients that contain it. Rows ascend in each gradient, so
// one pass over all gradients suffices.
void ShardArrays::update_rows(VariableShard& shard, const Contributions::Complete& complete,
                              const UpdateTerms& terms) {
  const auto& gradients = complete.gradients;
  const std::size_t width = size_of(shard.spec.dtype), row_elements = shard.spec.row_elements();
  std::vector<std::uint64_t> rows;
  for (const auto& gradient : gradients)
    rows.insert(rows.end(), gradient.rows->begin(), gradient.rows->end());
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  const std::vector<Range> ranges = ranges_of(shard, rows);
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

std::uint64_t ShardArrays::checksum() const {
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
  return sum;
}

}  // namespace lockstep::strategies
