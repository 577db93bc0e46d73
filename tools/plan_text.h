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
  std::string written = {};     // when they were stored; empty: unknown
  double planning_seconds = 0;  // for the predictions of all sizes
};

std::string plan_text(const PlanSource& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);
// Returns a line per group of algorithms with equal plans, such as "hierarchical makes the same
// plan as direct" or "one_shot makes the same plan as direct from 512 KiB on"; empty if there are
// none.
std::string same_plans(const collectives::Choices& choices);
// Returns a JSON object on one line. Its fields:
//   source, topology       the cluster with all costs; `topology` can be read by --topology
//   calibration_seconds    duration of measuring the costs; null if nothing was measured
//   calibration_stored     whether stored costs were read
//   planning_seconds       duration of predicting all sizes, which the processes share
//   table                  per size: bytes, algorithm, predicted_us, runner_up, runner_up_us,
//                          reason, asked (requested by --algorithm), predicted_of_all_us,
//                          same_plan (algorithms whose plan equals that of another, the other),
//                          reduced (predicted from a part of the hosts)
//   refused                algorithms that these ranks cannot use, with the reason
//   hash                   hash of the choices
//   model, buckets         with a model: its buckets have begin and end (elements) and the members
//                          of the table's entries
//   optimizer, update, update_reason
std::string plan_json(const PlanSource& source, const collectives::Topology& topology,
                      const collectives::Choices& choices, const PlannedModel* model);

}  // namespace lockstep::tools
