// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/placement_builder.h"

#include <utility>

#include "engine/base/error.h"

namespace lockstep::strategies {

void PlacementBuilder::add(VarInfo variable) {
  if (!scopes_.empty()) pins_[variable.name] = here();
  variables_.push_back(std::move(variable));
}

TaskName PlacementBuilder::here() const {
  return scopes_.empty() ? TaskName{} : scopes_.back();
}

VariablePlacement PlacementBuilder::place(std::size_t servers, PlacementRules rules) const {
  for (const auto& [name, pin] : pins_) {
    const auto [at, added] = rules.pins.try_emplace(name, pin);
    if (!added) at->second = merge(pin, at->second);
  }
  return place_variables(variables_, servers, rules);
}

PlacementScope::PlacementScope(PlacementBuilder& builder, const TaskName& name)
    : builder_(builder), depth_(builder.scopes_.size()) {
  builder_.scopes_.push_back(merge(builder_.here(), name));
}

PlacementScope::PlacementScope(PlacementBuilder& builder, std::string_view name)
    : PlacementScope(builder, parse_task_name(name)) {}

PlacementScope::~PlacementScope() {
  engine::invariant(builder_.scopes_.size() == depth_ + 1, "an outer placement scope ended first");
  builder_.scopes_.pop_back();
}

}  // namespace lockstep::strategies
