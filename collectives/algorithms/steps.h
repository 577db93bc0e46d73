// SPDX-License-Identifier: MIT
// Builders for each kind of step, and queries that several algorithms make of a request. All
// functions are pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/request.h"

namespace lockstep::collectives {

Step reduce(std::size_t count, std::vector<Operand> from, std::vector<Operand> to,
            Epilogue epilogue = Epilogue::kNone);
Step post_send(std::size_t count, Operand from, int peer, std::optional<DType> wire = {});
Step post_receive(std::size_t count, Operand to, int peer, std::optional<DType> wire = {});
Step wait(int post);
Step arrive();
Step await(std::vector<int> ranks, int phase, int lane = 0);

// Returns the operands at the same offset of the same space in each of these ranks.
std::vector<Operand> everywhere(const std::vector<int>& ranks, Space space, std::size_t offset);
std::vector<int> all_ranks(const Request& request);
// Rank counts of the smallest and the largest host.
struct RanksOfHosts {
  int least = 0, most = 0;
};
RanksOfHosts ranks_of_hosts(const Request& request);

// Returns the type in which sums travel if it differs from the request's. On one host there is
// none.
std::optional<DType> wire_of_sums(const Request& request);
// Sets the epilogue of a sum's last addition: a mean is scaled; a sum that travels rounded is
// rounded.
void finish_sum(Step& step, const Request& request);

// Throws Error(kInvalid) if the request contradicts itself: no ranks, the mean of integers, minima
// or products, squares of a mean, or a wire type or an update of anything but plain sums.
void require_possible(const Request& request);
// Returns a plan for this request with `lanes` empty lanes per rank. Throws as require_possible
// does.
Plan empty_plan(const Request& request, std::string algorithm, int lanes);

}  // namespace lockstep::collectives
