// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/row_shards.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::strategies {

using engine::require;

RowShards::RowShards(const std::vector<engine::Parameter>& layout,
                     const VariablePlacement& placement) {
  for (const engine::Parameter& parameter : layout) {
    if (!parameter.compact) continue;
    tables_.push_back(parameter);
    std::vector<PlacedShard>& shards = shards_.emplace_back();
    for (const PlacedShard& shard : placement.shards) {
      const VarInfo& variable = placement.variables[shard.variable];
      if (variable.name != parameter.name) continue;
      require(variable.shape == parameter.whole, "table {} has shape {}, but was placed as {}",
              parameter.name, to_string(parameter.whole), to_string(variable.shape));
      shards.push_back(shard);
    }
    require(!shards.empty(), "table {} has no place on a server", parameter.name);
  }
}

std::vector<RowChunk> RowShards::chunks(std::size_t table, std::span<const std::uint64_t> touched,
                                        std::size_t most_rows) const {
  const engine::Parameter& parameter = tables_[table];
  const std::size_t columns = parameter.whole[1], most = std::max<std::size_t>(1, most_rows);
  std::vector<RowChunk> chunks;
  auto from = touched.begin();
  for (const PlacedShard& shard : shards_[table]) {
    const auto end = std::lower_bound(from, touched.end(), shard.rows.end);
    do {
      const auto to = from + std::min(end - from, std::ptrdiff_t(most));
      const std::size_t offset =
          parameter.range.begin + std::size_t(from - touched.begin()) * columns;
      chunks.push_back({shard.server,
                        shard.number,
                        {from, to},
                        {offset, offset + std::size_t(to - from) * columns}});
      from = to;
    } while (from != end);
  }
  return chunks;
}

std::vector<ShardPart> RowShards::parts(std::size_t table, std::size_t most_elements) const {
  const std::size_t columns = tables_[table].whole[1];
  const std::size_t most = std::max<std::size_t>(1, most_elements);
  std::vector<ShardPart> parts;
  for (const PlacedShard& shard : shards_[table]) {
    const std::size_t first = shard.rows.begin * columns, elements = shard.rows.size() * columns;
    for (std::size_t begin = 0; begin < elements; begin += most)
      parts.push_back(
          {shard.server, shard.number, begin, std::min(elements, begin + most), first + begin});
  }
  return parts;
}

std::size_t RowShards::most_rows(std::size_t table) const {
  std::size_t largest = 0;
  for (const PlacedShard& shard : shards_[table]) largest = std::max(largest, shard.rows.size());
  return std::min(largest, tables_[table].shape[0]);
}

}  // namespace lockstep::strategies
