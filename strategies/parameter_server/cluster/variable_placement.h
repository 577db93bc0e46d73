// SPDX-License-Identifier: MIT
// Where every variable of a job lies: on which server, in which shards. A pure function of the
// variables in their order, of the number of servers and of the rules, so that each task computes
// it for itself and none has to be told; servers are told `hash_of` when a job opens on them, and
// workers compare `describe` with their chief's, of which an error shows the first difference.
// Costs some microseconds a variable; allocates nothing of their size.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "strategies/parameter_server/cluster/placement_rules.h"

namespace lockstep::strategies {

struct PlacedShard {
  std::size_t variable = 0;  // of VariablePlacement::variables
  engine::Range rows = {};   // of axis 0 of the variable; of a scalar [0, 1)
  std::size_t server = 0;
  std::size_t number = 0;  // among the shards of this server, in this order, from 0
  std::size_t bytes = 0;
};

struct VariablePlacement {
  std::vector<VarInfo> variables = {};         // in the order of creation
  std::vector<PlacedShard> shards = {};        // by variable, then by rows
  std::vector<std::size_t> server_bytes = {};  // of each server, all its shards
};

// Throws Error(kInvalid) with the variable's name where it has no name or that of another, where a
// rule names a variable that is not there, and where a pin or a function names a task that is no
// server or a device that a server has not.
VariablePlacement place_variables(std::vector<VarInfo> variables, std::size_t servers,
                                  const PlacementRules& rules);

// For people: one line a shard, then bytes of each server in the last line. No newline at its end.
std::string placement_table(const VariablePlacement& placement);

// All of it, for comparing: one line a shard (text_difference.h). Equal texts are equal placements.
std::string describe(const VariablePlacement& placement);
std::uint64_t hash_of(const VariablePlacement& placement);

}  // namespace lockstep::strategies
