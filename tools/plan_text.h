// SPDX-License-Identifier: MIT
// A plan of a cluster for people and for programs: hosts, links, the algorithm for each size with
// its reason, and a model's buckets. Pure.
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
  std::vector<PlannedBucket> buckets;           // with the update, if it is fused
  std::string update = {}, update_reason = {};  // fused or separate; end of a sentence
};

// Holds the name of the topology (a file, an example, "this job") and the origin of its costs.
struct PlanSource {
  std::string name;
  // Duration of measuring the costs, or of reading stored ones.
  std::optional<double> seconds = {};
  bool stored = false;          // costs were stored
  double planning_seconds = 0;  // for the predictions of all sizes
};

std::string plan_text(const PlanSource& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);
// Returns a JSON object on one line.
std::string plan_json(const PlanSource& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);

}  // namespace lockstep::tools
