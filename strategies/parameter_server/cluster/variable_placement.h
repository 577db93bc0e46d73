// SPDX-License-Identifier: MIT
// The placement of a job's variables: the shards of each variable and their servers. It is a pure
// function of the ordered variables, the number of servers and the rules, so each task computes it
// itself. Servers receive `hash_of` when a job opens on them. Workers compare `describe` with the
// chief's; the error shows the first difference. Costs some microseconds per variable; allocates
// nothing of the variables' size.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "strategies/parameter_server/cluster/placement_rules.h"

namespace lockstep::strategies {

struct PlacedShard {
  std::size_t variable = 0;  // index in VariablePlacement::variables
  // Rows of axis 0 of the variable; [0, 1) for a scalar.
  engine::Range rows = {};
  std::size_t server = 0;
  std::size_t number = 0;  // index among this server's shards, from 0
  std::size_t bytes = 0;
};

struct VariablePlacement {
  std::vector<VarInfo> variables = {};         // in the order of creation
  std::vector<PlacedShard> shards = {};        // by variable, then by rows
  std::vector<std::size_t> server_bytes = {};  // bytes of all shards of each server
};

// Throws Error(kInvalid) with the variable's name if the name is empty or not unique, or if a rule
// names an unknown variable. Also throws if a pin or a function names a task that is not a server,
// or a device that servers do not have.
VariablePlacement place_variables(std::vector<VarInfo> variables, std::size_t servers,
                                  const PlacementRules& rules);

// Returns a table for users: one line per shard, and the bytes of each server in the last line. It
// has no final newline.
std::string placement_table(const VariablePlacement& placement);

// Returns the whole placement for comparisons, one line per shard (text_difference.h). Equal texts
// mean equal placements.
std::string describe(const VariablePlacement& placement);
std::uint64_t hash_of(const VariablePlacement& placement);

}  // namespace lockstep::strategies
