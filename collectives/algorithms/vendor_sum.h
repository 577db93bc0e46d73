// SPDX-License-Identifier: MIT
// Plans for sums that a vendor's library makes: one step in which each rank hands over its numbers
// (Action::kVendor). The library defines the order of additions, which is the same in every run of
// one version on the same machines. These sums are not in the registry: only ranks on that vendor's
// devices can use them, and the planner does not predict their time. All functions are pure. They
// throw Error(kInvalid) for what the library cannot do.
#pragma once
#include <array>
#include <string_view>

#include "collectives/algorithms/request.h"
#include "collectives/plan/plan.h"

namespace lockstep::collectives {

// NVIDIA's NCCL, over all ranks at once and by hosts (nccl/hierarchical.h).
inline constexpr std::array<std::string_view, 2> kVendorSums{"nccl", "nccl_hierarchical"};
bool is_vendor_sum(std::string_view name);

// Makes a plan for Goal::kSumEverywhere. Only plain sums are possible: no mean, update, squares or
// wire.
Plan vendor_all_reduce(const Request& request, std::string_view name);

}  // namespace lockstep::collectives
