// SPDX-License-Identifier: MIT
// Sums that a vendor's library makes, as a plan: one step in which each rank hands over its numbers
// (Action::kVendor). How the library goes about it the plan does not say, so its order of additions
// is the library's, the same in every run of one version on the same machines. They are no
// algorithms of the registry: only ranks on devices of that vendor can have them, and the planner
// does not price them. Pure; no threads. Throws Error(kInvalid) for what the library cannot do.
#pragma once
#include <array>
#include <string_view>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/plan.h"

namespace lockstep::collectives {

// NVIDIA's NCCL: all ranks alike; by hosts (nccl/hierarchical.h).
inline constexpr std::array<std::string_view, 2> kVendorSums{"nccl", "nccl_hierarchical"};
bool is_vendor_sum(std::string_view name);

// Goal::kSumEverywhere. Plain sums: no mean, update, squares or wire.
Plan vendor_all_reduce(const Request& request, std::string_view name);

}  // namespace lockstep::collectives
