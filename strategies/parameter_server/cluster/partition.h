// SPDX-License-Identifier: MIT
// Partitioning of a variable into shards, by rows of its axis 0, so that several servers hold it.
// Shards of a variable are consecutive. Their sizes differ by at most one row, larger ones first.
// Pure; nothing of the variable's size is allocated; thread-safe.
#pragma once
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::strategies {

// Describes a variable, or one of its shards, before its placement.
struct VarInfo {
  // "conv1.weight"; a shard has the name of its variable.
  std::string name = {};
  engine::Shape shape = {};  // a shard's has only its rows
  std::size_t bytes = 0;
  bool trainable = true;
  bool sparse = false;  // pulled and pushed by rows
  // Index of this shard and the number of shards; a variable is cut only once.
  std::size_t shard = 0, shards = 1;
  bool decays = true;  // subject to the optimizer's weight decay
};

// Returns the rows of axis 0; a scalar has one.
std::size_t rows_of(const engine::Shape& shape);

// Keeps every variable whole.
struct WholeVariables {};
// Cuts each variable into `shards` shards, or into its rows if it has fewer rows.
struct FixedShards {
  std::size_t shards = 1;
};
// Makes as many shards of at least `bytes` bytes as possible, at most one per server.
struct MinShardBytes {
  std::size_t bytes = 1;
};
// Makes as few shards of at most `bytes` bytes as possible; a shard has at least one row.
struct MaxShardBytes {
  std::size_t bytes = 1;
};
using Partitioner = std::variant<WholeVariables, FixedShards, MinShardBytes, MaxShardBytes>;

// Returns the number of the variable's shards: 1 to rows_of(its shape). Throws Error(kInvalid) with
// the variable's name if the partitioner asks for no shards or for empty shards. Also throws if the
// variable has no rows, or if its bytes are not a multiple of its rows.
std::size_t shards_of(const Partitioner& partitioner, const VarInfo& variable, std::size_t servers);

// Returns the rows [begin, end) of each of `shards` shards; requires 1 <= shards <= rows.
std::vector<engine::Range> cut_rows(std::size_t rows, std::size_t shards);

}  // namespace lockstep::strategies
