// SPDX-License-Identifier: MIT
// A plan of a cluster for people and for programs: hosts, links, which algorithm for which size and
// why, a model's buckets. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "collectives/cost/planner.h"
#include "collectives/topology/topology.h"

namespace lockstep::tools {

struct PlannedBucket {
  engine::Range range;  // elements
  collectives::Choice choice;
};
struct PlannedModel {
  std::string name, optimizer;
  std::vector<PlannedBucket> buckets;           // with the update inside, where it is fused
  std::string update = {}, update_reason = {};  // fused, separate; the end of a sentence
};

// What the topology is called: a file, an example, "this job"; and how its costs were found.
struct PlanSource {
  std::string name;
  std::optional<double> seconds = {};  // that measuring took, or reading what was measured before
  bool stored = false;                 // it was measured before
  double planning_seconds = 0;         // that pricing all sizes took
};

std::string plan_text(const PlanSource& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);
// One object, on one line.
std::string plan_json(const PlanSource& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);

}  // namespace lockstep::tools
