// SPDX-License-Identifier: MIT
// A picture (SVG) of a cluster and one all-reduce on it. It has the hosts with their ranks and
// links, the ranks that exchange numbers, and the timeline of each rank from the simulator. Large
// clusters are shown in part. Pure.
#pragma once
#include <span>
#include <string>

#include "collectives/cost/planner.h"
#include "collectives/topology/topology.h"

namespace lockstep::tools {

std::string plan_picture(const std::string& source, const collectives::Topology& topology,
                         std::span<const collectives::Algorithm> algorithms,
                         const collectives::Choice& choice);

}  // namespace lockstep::tools
