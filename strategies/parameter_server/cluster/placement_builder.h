// SPDX-License-Identifier: MIT
// Collects variables in the order in which they are created, and pins those that are created within
// a scope:
//
//   PlacementBuilder builder;
//   PlacementScope servers(builder, "/job:ps");
//   {
//     PlacementScope second(builder, "/task:1");
//     builder.add(w1);                                // /job:ps/task:1
//   }
//   builder.add(w2);                                  // /job:ps, which is its task 0
//
// Nested names are merged, inner ones win part by part (task_name.h). Not for several threads at
// once.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/parameter_server/cluster/variable_placement.h"

namespace lockstep::strategies {

class PlacementBuilder {
 public:
  PlacementBuilder() = default;
  PlacementBuilder(const PlacementBuilder&) = delete;  // scopes point to it
  PlacementBuilder& operator=(const PlacementBuilder&) = delete;

  void add(VarInfo variable);
  // What the scopes that are open say together.
  TaskName here() const;
  // As place_variables does. Where the rules pin a variable too, they win over the scopes, part by
  // part.
  VariablePlacement place(std::size_t servers, PlacementRules rules = {}) const;

 private:
  friend class PlacementScope;
  std::vector<VarInfo> variables_;
  std::map<std::string, TaskName> pins_;
  std::vector<TaskName> scopes_;  // open ones, each merged with those around it
};

// Open from its construction to its end; scopes end in the reverse order, as blocks do.
class PlacementScope {
 public:
  PlacementScope(PlacementBuilder& builder, const TaskName& name);
  // Throws as parse_task_name does.
  PlacementScope(PlacementBuilder& builder, std::string_view name);
  ~PlacementScope();
  PlacementScope(const PlacementScope&) = delete;
  PlacementScope& operator=(const PlacementScope&) = delete;

 private:
  PlacementBuilder& builder_;
  std::size_t depth_;
};

}  // namespace lockstep::strategies
