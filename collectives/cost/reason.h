// SPDX-License-Identifier: MIT
// Explanation for people, in one sentence, why one all-reduce is predicted to take less time than
// another. It says what the first needs less of, with both amounts. If it needs no less of
// anything, it says how long each waits, or leaves the resource idle that limits it. Pure and
// thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "collectives/cost/price.h"

namespace lockstep::collectives {

// Compares the algorithm `name` with `other`, which takes longer.
std::string reason(std::string_view name, const Price& mine, std::string_view other,
                   const Price& than);

}  // namespace lockstep::collectives
