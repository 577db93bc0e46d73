// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/partition.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

using engine::require;

// Computes the number of shards for each kind of partitioner. `row`: bytes of one row.
struct Count {
  const VarInfo& variable;
  std::size_t rows, row, servers;

  std::size_t operator()(WholeVariables) const { return 1; }
  std::size_t operator()(FixedShards fixed) const {
    require(fixed.shards > 0, "variable {} cannot be cut into 0 shards", variable.name);
    return std::min(fixed.shards, rows);
  }
  // The smallest of n shards has floor(rows / n) rows, which suffice if n <= rows / enough.
  std::size_t operator()(MinShardBytes least) const {
    require(least.bytes > 0, "variable {} cannot have shards of at least 0 bytes", variable.name);
    const std::size_t enough = (least.bytes - 1) / row + 1;
    return std::clamp(rows / enough, std::size_t(1), servers);
  }
  // The largest of n shards has ceil(rows / n) rows.
  std::size_t operator()(MaxShardBytes most) const {
    require(most.bytes > 0, "variable {} cannot have shards of at most 0 bytes", variable.name);
    const std::size_t fit = std::max(most.bytes / row, std::size_t(1));
    return (rows - 1) / fit + 1;
  }
};

}  // namespace

std::size_t rows_of(const engine::Shape& shape) {
  return shape.rank() > 0 ? shape[0] : 1;
}

std::size_t shards_of(const Partitioner& partitioner, const VarInfo& variable,
                      std::size_t servers) {
  const std::size_t rows = rows_of(variable.shape);
  require(servers > 0, "variable {} has no server to lie on", variable.name);
  require(rows > 0 && variable.bytes > 0 && variable.bytes % rows == 0,
          "variable {} of shape {} cannot have {} bytes: they must be the same for each of its {} "
          "rows, and more than 0",
          variable.name, to_string(variable.shape), variable.bytes, rows);
  return std::visit(Count{variable, rows, variable.bytes / rows, servers}, partitioner);
}

std::vector<engine::Range> cut_rows(std::size_t rows, std::size_t shards) {
  require(shards >= 1 && shards <= rows, "{} rows cannot be cut into {} shards", rows, shards);
  const std::size_t least = rows / shards, larger = rows % shards;  // these are larger by one
  std::vector<engine::Range> ranges(shards);
  std::size_t at = 0;
  for (std::size_t s = 0; s < shards; ++s) {
    ranges[s] = {at, at + least + (s < larger ? 1 : 0)};
    at = ranges[s].end;
  }
  return ranges;
}

}  // namespace lockstep::strategies
