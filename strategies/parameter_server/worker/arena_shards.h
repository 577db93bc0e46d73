// SPDX-License-Identifier: MIT
// The arena of a graph (engine/nn/graph.h) and the shards of its variables on the servers: which
// elements of the one are which of the other. Made once, when a job opens; all calls are pure and
// may come from any thread. Offsets and ends are in elements, never bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/nn/graph.h"
#include "strategies/parameter_server/cluster/variable_placement.h"

namespace lockstep::strategies {

// Elements [begin, end) of a shard of a server, which lie in the arena from `offset` on.
struct ShardPart {
  std::size_t server = 0;
  std::size_t shard = 0;  // PlacedShard::number: its number among the server's
  std::size_t begin = 0, end = 0;
  std::size_t offset = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const ShardPart&) const = default;
};

// What one message to one server holds: parts in ascending order of the arena.
struct ShardChunk {
  std::vector<ShardPart> parts = {};
  std::size_t elements = 0;  // of all parts
  engine::Range span = {};   // of the arena, from the first part's begin to the last one's end
};

// Adds the parts to the head of a message (messages.proto, Part).
template <class Head>
void add_parts(const std::vector<ShardPart>& parts, Head& head) {
  for (const ShardPart& part : parts) {
    auto* const added = head.add_parts();
    added->set_shard(std::uint32_t(part.shard));
    added->set_begin(part.begin);
    added->set_end(part.end);
  }
}

class ArenaShards {
 public:
  // Parameters and variables are matched by name. A variable that the graph has not (whose rows
  // travel by themselves, say) has no parts. Throws Error(kInvalid) with the name of a parameter
  // that has no place, another shape, or other bytes than its elements of `element_bytes` take.
  ArenaShards(const std::vector<engine::Parameter>& layout, const VariablePlacement& placement,
              std::size_t element_bytes);

  // What of `range` is a variable, in the order of the arena; padding between them has no part.
  // Costs a binary search, and one allocation for the result.
  std::vector<ShardPart> parts(engine::Range range) const;

  // What of `range` lies on `server`, cut into chunks of at most `chunk_bytes`, all but the last
  // one as large as that allows: in the order of the arena, in which backward finishes gradients.
  // So with [0, graph.trainable()) chunk i can be pushed once gradients up to its span's end are
  // final; the reverse is the order in which forward needs weights. A chunk holds one element at
  // least.
  std::vector<ShardChunk> chunks(std::size_t server, engine::Range range,
                                 std::size_t chunk_bytes = std::size_t(4) << 20) const;

 private:
  std::vector<ShardPart> parts_;  // of the whole arena, by offset
  std::size_t element_bytes_;
};

}  // namespace lockstep::strategies
