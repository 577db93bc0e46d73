// SPDX-License-Identifier: MIT
// The words in which algorithms are written: one function for each kind of step, and the questions
// that several of them ask of a request. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"

namespace lockstep::collectives {

Step reduce(std::size_t count, std::vector<Operand> from, std::vector<Operand> to,
            Epilogue epilogue = Epilogue::kNone);
Step post_send(std::size_t count, Operand from, int peer, std::optional<DType> wire = {});
Step post_receive(std::size_t count, Operand to, int peer, std::optional<DType> wire = {});
Step wait(int post);
Step arrive();
Step await(std::vector<int> ranks, int phase, int lane = 0);

// The same offset of the same space in each of these ranks.
std::vector<Operand> everywhere(const std::vector<int>& ranks, Space space, std::size_t offset);
std::vector<int> all_ranks(const Request& request);
// How many ranks the smallest and the largest host have.
struct RanksOfHosts {
  int least = 0, most = 0;
};
RanksOfHosts ranks_of_hosts(const Request& request);

// In which sums travel, where not in the request's type; nothing travels on one host.
std::optional<DType> wire_of_sums(const Request& request);
// What the last addition of a sum does besides: a mean is scaled, and what others will have from a
// message that rounds is rounded.
void finish_sum(Step& step, const Request& request);

// Throws Error(kInvalid) where the request contradicts itself: no ranks, the mean of integers, the
// mean of minima or products, squares of a mean.
void require_possible(const Request& request);
// A plan for this request with `lanes` empty lanes a rank. Throws as require_possible does.
Plan empty_plan(const Request& request, std::string algorithm, int lanes);

}  // namespace lockstep::collectives
