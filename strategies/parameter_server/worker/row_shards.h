// SPDX-License-Identifier: MIT
// Tables of which a graph holds only the rows that a batch touches (GraphOptions::compact_rows),
// and the shards of these tables on the servers. Made once, when a job opens. All calls are pure
// and thread-safe.
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

// Holds the touched rows of one shard in one message, ascending. In the arena they are contiguous:
// elements `span`.
struct RowChunk {
  std::size_t server = 0;
  std::size_t shard = 0;                     // PlacedShard::number
  std::span<const std::uint64_t> rows = {};  // row numbers, owned by the caller
  engine::Range span = {};
};

class RowShards {
 public:
  // Maximum rows of a message, besides its limit of 60 MiB: a row number takes up to ten bytes in
  // the head.
  static constexpr std::size_t kMostRows = std::size_t(1) << 18;

  // Matches compact parameters and variables by name. Throws Error(kInvalid) with the name of a
  // parameter without a place or with another shape.
  RowShards(const std::vector<engine::Parameter>& layout, const VariablePlacement& placement);

  const std::vector<engine::Parameter>& tables() const { return tables_; }
  // Returns the chunks of the rows `touched` of table number `table`, in the order of the arena.
  // `touched`: ascending, as from the graph. A chunk has at most `most_rows` rows. Each shard has
  // at least one chunk, which may be empty. Costs a binary search per shard.
  std::vector<RowChunk> chunks(std::size_t table, std::span<const std::uint64_t> touched,
                               std::size_t most_rows = kMostRows) const;
  // Returns the whole table in parts of at most `most_elements` elements. `offset` counts from the
  // table's first element.
  std::vector<ShardPart> parts(std::size_t table, std::size_t most_elements) const;
  // Returns the maximum number of rows of one shard of the table that a batch can touch.
  std::size_t most_rows(std::size_t table) const;

 private:
  std::vector<engine::Parameter> tables_;
  std::vector<std::vector<PlacedShard>> shards_;  // by table, ascending
};

}  // namespace lockstep::strategies
