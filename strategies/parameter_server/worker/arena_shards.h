// SPDX-License-Identifier: MIT
// A map between the arena of a graph (engine/nn/graph.h) and the shards of its variables on the
// servers. Made once, when a job opens. All calls are pure and thread-safe. Offsets and ends are in
// elements, never bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/nn/graph.h"
#include "strategies/parameter_server/cluster/variable_placement.h"

namespace lockstep::strategies {

// Holds the elements [begin, end) of a server's shard, which lie in the arena from `offset` on.
struct ShardPart {
  std::size_t server = 0;
  std::size_t shard = 0;  // PlacedShard::number
  std::size_t begin = 0, end = 0;
  std::size_t offset = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const ShardPart&) const = default;
};

// Holds the contents of one message to one server: parts in ascending order of the arena.
struct ShardChunk {
  std::vector<ShardPart> parts = {};
  std::size_t elements = 0;  // sum over the parts
  // Range of the arena, from the first part's begin to the last part's end.
  engine::Range span = {};
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
  // Matches parameters and variables by name. A variable that the graph does not have (for example,
  // one whose rows travel separately) has no parts. Throws Error(kInvalid) with the name of a
  // parameter without a place, with another shape, or with another size than `element_bytes` per
  // element.
  ArenaShards(const std::vector<engine::Parameter>& layout, const VariablePlacement& placement,
              std::size_t element_bytes);

  // Returns the parts of `range` that are variables, in the order of the arena; padding has no
  // part. Costs a binary search, and one allocation for the result.
  std::vector<ShardPart> parts(engine::Range range) const;

  // Returns the parts of `range` on `server` in chunks of at most `chunk_bytes`, each as large as
  // possible and with at least one element. They are in the order of the arena, in which backward
  // finishes gradients. For [0, graph.trainable()), chunk i can be pushed once gradients up to its
  // span's end are final. Forward needs weights in the reverse order.
  std::vector<ShardChunk> chunks(std::size_t server, engine::Range range,
                                 std::size_t chunk_bytes = std::size_t(4) << 20) const;

 private:
  std::vector<ShardPart> parts_;  // whole arena, by offset
  std::size_t element_bytes_;
};

}  // namespace lockstep::strategies
