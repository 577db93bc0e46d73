// SPDX-License-Identifier: MIT
// Tables of which a graph holds only the rows that a batch touches (GraphOptions::compact_rows),
// and the shards that hold these tables on the servers: which server is asked for which rows. Made
// once, when a job opens; all calls are pure and may come from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/nn/graph.h"
#include "strategies/parameter_server/cluster/variable_placement.h"
#include "strategies/parameter_server/worker/arena_shards.h"

namespace lockstep::strategies {

// Touched rows of one shard, ascending, which one message holds. In the arena they lie one behind
// the other: elements `span`.
struct RowChunk {
  std::size_t server = 0;
  std::size_t shard = 0;                     // PlacedShard::number
  std::span<const std::uint64_t> rows = {};  // of the table; the caller's
  engine::Range span = {};
};

class RowShards {
 public:
  // What a message may hold besides bytes: a number of a row takes up to ten in its head.
  static constexpr std::size_t kMostRows = std::size_t(1) << 18;

  // Compact parameters and variables are matched by name. Throws Error(kInvalid) with the name of a
  // parameter that has no place, or another shape.
  RowShards(const std::vector<engine::Parameter>& layout, const VariablePlacement& placement);

  const std::vector<engine::Parameter>& tables() const { return tables_; }
  // Rows `touched` of table number `table`, ascending, as the graph tells them, for messages of at
  // most `most_rows` rows each: in the order of the arena. Each shard has one chunk at least, maybe
  // without rows. Costs a binary search a shard.
  std::vector<RowChunk> chunks(std::size_t table, std::span<const std::uint64_t> touched,
                               std::size_t most_rows = kMostRows) const;
  // The whole table in pieces of at most so many elements; `offset` counts from its first one.
  std::vector<ShardPart> parts(std::size_t table, std::size_t most_elements) const;
  // The most rows of one shard of the table that a batch can touch.
  std::size_t most_rows(std::size_t table) const;

 private:
  std::vector<engine::Parameter> tables_;
  std::vector<std::vector<PlacedShard>> shards_;  // by table, ascending
};

}  // namespace lockstep::strategies
