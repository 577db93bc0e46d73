// SPDX-License-Identifier: MIT
// Cutting a variable into shards, by rows of its axis 0, so that several servers hold it. Shards of
// a variable follow each other and differ by at most one row, larger ones first. Pure, and nothing
// of the variable's size is allocated; any thread.
#pragma once
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::strategies {

// What is known of a variable, or of one of its shards, before it has a place.
struct VarInfo {
  std::string name = {};     // "conv1.weight"; that of the whole variable for its shards too
  engine::Shape shape = {};  // of a shard: with its rows
  std::size_t bytes = 0;
  bool trainable = true;
  bool sparse = false;                // pulled and pushed by rows
  std::size_t shard = 0, shards = 1;  // which of how many; a variable is cut only once
  bool decays = true;                 // by the optimizer's weight decay
};

// Rows of axis 0; a scalar has one.
std::size_t rows_of(const engine::Shape& shape);

// Nothing is cut.
struct WholeVariables {};
// So many shards of each variable, or as many as it has rows where these are fewer.
struct FixedShards {
  std::size_t shards = 1;
};
// As many shards as have at least so many bytes each, but no more than there are servers.
struct MinShardBytes {
  std::size_t bytes = 1;
};
// As few shards as have at most so many bytes each; one row is the least that a shard can have.
struct MaxShardBytes {
  std::size_t bytes = 1;
};
using Partitioner = std::variant<WholeVariables, FixedShards, MinShardBytes, MaxShardBytes>;

// How many shards that makes of the variable: 1 to rows_of(its shape). Throws Error(kInvalid) with
// the variable's name where the partitioner asks for none or for shards without bytes, and where
// the variable has no rows, or bytes that are not the same for each.
std::size_t shards_of(const Partitioner& partitioner, const VarInfo& variable, std::size_t servers);

// Rows [begin, end) of each of `shards` shards; 1 <= shards <= rows.
std::vector<engine::Range> cut_rows(std::size_t rows, std::size_t shards);

}  // namespace lockstep::strategies
