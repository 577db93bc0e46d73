// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/arena_shards.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

using engine::require;

// Returns the shards of each variable, which are consecutive.
std::map<std::string_view, std::span<const PlacedShard>> shards_by_name(
    const VariablePlacement& placement) {
  std::map<std::string_view, std::span<const PlacedShard>> found;
  const std::vector<PlacedShard>& shards = placement.shards;
  for (std::size_t first = 0; first < shards.size();) {
    std::size_t end = first;
    while (end < shards.size() && shards[end].variable == shards[first].variable) ++end;
    found[placement.variables[shards[first].variable].name] =
        std::span(shards).subspan(first, end - first);
    first = end;
  }
  return found;
}

}  // namespace

ArenaShards::ArenaShards(const std::vector<engine::Parameter>& layout,
                         const VariablePlacement& placement, std::size_t element_bytes)
    : element_bytes_(element_bytes) {
  const auto shards = shards_by_name(placement);
  for (const engine::Parameter& parameter : layout) {
    const auto found = shards.find(parameter.name);
    require(found != shards.end(), "parameter {} has no place on a server", parameter.name);
    const VarInfo& variable = placement.variables[found->second.front().variable];
    require(variable.shape == parameter.shape &&
                variable.bytes == parameter.range.size() * element_bytes,
            "parameter {} has shape {} and {} bytes, but was placed as {} with {}", parameter.name,
            to_string(parameter.shape), parameter.range.size() * element_bytes,
            to_string(variable.shape), variable.bytes);
    const std::size_t of_row = parameter.range.size() / rows_of(parameter.shape);
    for (const PlacedShard& shard : found->second)
      parts_.push_back({shard.server, shard.number, 0, shard.rows.size() * of_row,
                        parameter.range.begin + shard.rows.begin * of_row});
  }
  std::ranges::sort(parts_, {}, &ShardPart::offset);
}

std::vector<ShardPart> ArenaShards::parts(engine::Range range) const {
  // Parts are disjoint, so their ends ascend like their offsets.
  auto at = std::ranges::upper_bound(parts_, range.begin, {},
                                     [](const ShardPart& p) { return p.offset + p.size(); });
  std::vector<ShardPart> found;
  for (; at != parts_.end() && at->offset < range.end; ++at) {
    const std::size_t from = std::max(at->offset, range.begin);
    const std::size_t to = std::min(at->offset + at->size(), range.end);
    if (from >= to) continue;  // `range` is empty
    found.push_back({at->server, at->shard, at->begin + (from - at->offset),
                     at->begin + (to - at->offset), from});
  }
  return found;
}

std::vector<ShardChunk> ArenaShards::chunks(std::size_t server, engine::Range range,
                                            std::size_t chunk_bytes) const {
  const std::size_t most = std::max(chunk_bytes / element_bytes_, std::size_t(1));
  std::vector<ShardChunk> chunks;
  for (ShardPart rest : parts(range)) {
    if (rest.server != server) continue;
    while (rest.size() > 0) {
      if (chunks.empty() || chunks.back().elements == most) {
        chunks.emplace_back();
        chunks.back().span.begin = rest.offset;
      }
      ShardChunk& chunk = chunks.back();
      ShardPart part = rest;
      part.end = part.begin + std::min(rest.size(), most - chunk.elements);
      chunk.parts.push_back(part);
      chunk.elements += part.size();
      chunk.span.end = part.offset + part.size();
      rest.begin = part.end;
      rest.offset = chunk.span.end;
    }
  }
  return chunks;
}

}  // namespace lockstep::strategies
