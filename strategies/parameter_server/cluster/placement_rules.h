// SPDX-License-Identifier: MIT
// Rules for the placement of variables on servers. They apply in this order:
//   1. A pin puts the whole variable on the task that it names.
//   2. The partitioner cuts the variable into shards, each with its own place.
//   3. The placer is a function, the least loaded server, or round-robin.
//   4. Round-robin decides if the function returns an empty name.
// Plain values; the functions here are pure.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "strategies/parameter_server/cluster/partition.h"
#include "strategies/parameter_server/cluster/task_name.h"

namespace lockstep::strategies {

// Assigns servers 0, 1, 2, ..., 0, ... in the order in which variables were created. Pinned
// variables are skipped.
struct RoundRobin {};

// Chooses the server with the fewest bytes so far, the lowest of equals. A pinned variable counts
// from its position in the order of creation.
struct GreedyBytes {};

// User-defined function, called for each variable or shard in the order of creation. It must return
// the same on every task. A name without job and task leaves the choice to round-robin.
using PlacementFunction = std::function<TaskName(const VarInfo&)>;

using Placer = std::variant<RoundRobin, GreedyBytes, PlacementFunction>;

struct PlacementRules {
  Placer placer = RoundRobin{};
  Partitioner partitioner = WholeVariables{};              // default of `partitioner_of`
  std::map<std::string, Partitioner> partitioner_of = {};  // by variable
  std::map<std::string, TaskName> pins = {};               // by variable; the default job is "ps"
};

// These functions parse flags. They throw Error(kInvalid) with all valid forms.
Placer parse_placement(std::string_view text);       // "round_robin", "greedy"
Partitioner parse_partition(std::string_view text);  // "none", "fixed:3", "min:64KiB", "max:4MiB"

}  // namespace lockstep::strategies
