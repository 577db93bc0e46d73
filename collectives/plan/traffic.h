// SPDX-License-Identifier: MIT
// What a plan sends over the wire between hosts, by rank. Pure; any thread.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::collectives {

struct Traffic {
  std::size_t messages = 0;  // not empty ones
  std::size_t elements = 0;  // sent
  std::size_t bytes = 0;     // likewise, in the types in which they travel
};
std::vector<Traffic> traffic(const Plan& plan);

}  // namespace lockstep::collectives
