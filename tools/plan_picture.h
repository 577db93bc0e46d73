// SPDX-License-Identifier: MIT
// A cluster and one all-reduce on it as a picture (SVG): hosts with their ranks and links, and
// below them what each rank does over time, as the simulator says. Large clusters are shown in
// part. Pure.
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
