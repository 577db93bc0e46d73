// SPDX-License-Identifier: MIT
// Why one all-reduce takes less time than another, from their prices, as one sentence for people:
// what it needs less of, with both amounts; or, where it needs no less of anything, what is its
// limit and how long that stands idle with each. Pure; any thread.
#pragma once
#include <string>
#include <string_view>

#include "collectives/cost/price.h"

namespace lockstep::collectives {

// Compares the algorithm `name` with `other`, which takes longer.
std::string reason(std::string_view name, const Price& mine, std::string_view other,
                   const Price& than);

}  // namespace lockstep::collectives
