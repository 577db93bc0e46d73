// SPDX-License-Identifier: MIT
// A builder that collects variables in the order of their creation. It pins those that are created
// within a scope:
//
//   PlacementBuilder builder;
//   PlacementScope servers(builder, "/job:ps");
//   {
//     PlacementScope second(builder, "/task:1");
//     builder.add(w1);                                // /job:ps/task:1
//   }
//   builder.add(w2);                                  // /job:ps, which is its task 0
//
// Nested names are merged; each part of an inner name wins (task_name.h). Not thread-safe.
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
  // Returns the merged name of all open scopes.
  TaskName here() const;
  // Calls place_variables. If the rules also pin a variable, each part of their name wins over the
  // scopes.
  VariablePlacement place(std::size_t servers, PlacementRules rules = {}) const;

 private:
  friend class PlacementScope;
  std::vector<VarInfo> variables_;
  std::map<std::string, TaskName> pins_;
  std::vector<TaskName> scopes_;  // open scopes, each merged with the outer ones
};

// Opens a scope that ends with this object. Scopes end in reverse order, like blocks.
class PlacementScope {
 public:
  PlacementScope(PlacementBuilder& builder, const TaskName& name);
  // Throws like parse_task_name.
  PlacementScope(PlacementBuilder& builder, std::string_view name);
  ~PlacementScope();
  PlacementScope(const PlacementScope&) = delete;
  PlacementScope& operator=(const PlacementScope&) = delete;

 private:
  PlacementBuilder& builder_;
  std::size_t depth_;
};

}  // namespace lockstep::strategies
