// SPDX-License-Identifier: MIT
// Why one all-reduce takes less time than another, from their prices, as one sentence for people:
// what it needs less of, with both amounts; or, where it needs no less of anything, what is its
// limit and how long that stands idle with each. Pure; any thread.
#pragma once
#include <string>
#include <string_view>

#include "collectives/price.h"

namespace lockstep::collectives {

// `than` takes longer than `mine`, and is that of the algorithm `name`.
std::string reason(const Price& mine, const Price& than, std::string_view name);

}  // namespace lockstep::collectives
