// SPDX-License-Identifier: MIT
// A plan of a cluster for people and for programs: hosts, links, which algorithm for which size and
// why, a model's buckets. Pure.
#pragma once
#include <string>
#include <vector>

#include "collectives/planner.h"
#include "collectives/topology.h"

namespace lockstep::tools {

struct PlannedBucket {
  engine::Range range;  // elements
  collectives::Choice choice;
};
struct PlannedModel {
  std::string name;
  std::vector<PlannedBucket> buckets;
};

// `source`: what the topology is called: a file, an example, "this job".
std::string plan_text(const std::string& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);
// One object, on one line.
std::string plan_json(const std::string& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);

}  // namespace lockstep::tools
