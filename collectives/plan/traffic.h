// SPDX-License-Identifier: MIT
// Messages and bytes that each rank of a plan sends to other hosts. Pure and thread-safe.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::collectives {

struct Traffic {
  std::size_t messages = 0;  // non-empty only
  std::size_t elements = 0;  // sent
  std::size_t bytes = 0;     // sent, in their wire types
};
std::vector<Traffic> traffic(const Plan& plan);

}  // namespace lockstep::collectives
