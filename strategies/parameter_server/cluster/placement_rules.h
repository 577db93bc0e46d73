// SPDX-License-Identifier: MIT
// Who decides on which server a variable lies, in the order in which they are asked:
//   1. a pin: the variable lies whole on the task that it names;
//   2. the partitioner: it cuts the variable into shards, each of which then has its own place;
//   3. the placer: a function, or the least loaded server, or the servers in turn;
//   4. where a function has no opinion: the servers in turn.
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

// Servers 0, 1, 2, ..., 0, ... in the order in which variables were created. What is pinned takes
// no turn.
struct RoundRobin {};

// The server with the fewest bytes so far, the lowest of several such. What is pinned counts from
// its place in the order on.
struct GreedyBytes {};

// A function of one's own. It is asked for each variable, or shard, in the order of creation, and
// must say the same on every task. A name that says neither job nor task is no opinion.
using PlacementFunction = std::function<TaskName(const VarInfo&)>;

using Placer = std::variant<RoundRobin, GreedyBytes, PlacementFunction>;

struct PlacementRules {
  Placer placer = RoundRobin{};
  Partitioner partitioner = WholeVariables{};              // of variables that have none below
  std::map<std::string, Partitioner> partitioner_of = {};  // by variable
  std::map<std::string, TaskName> pins = {};               // by variable; job "ps" where not said
};

// For flags. Both throw Error(kInvalid) with all that could have been written.
Placer parse_placement(std::string_view text);       // "round_robin", "greedy"
Partitioner parse_partition(std::string_view text);  // "none", "fixed:3", "min:64KiB", "max:4MiB"

}  // namespace lockstep::strategies
