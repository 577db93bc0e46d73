// SPDX-License-Identifier: MIT
// All algorithms of an all-reduce in one table: what a planner chooses from, a user names and tests
// go through. Pure values without state; any thread. Whoever chooses takes the table as an
// argument, so that others can be offered algorithms of their own.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/algorithms.h"

namespace lockstep::collectives {

struct Algorithm {
  std::string_view name;  // as a user writes it and a plan carries it
  // Sums are the same balanced tree over the ranks in their order, whatever the range and the
  // hosts. (Of 16 bits: with other roundings in it than another algorithm's.)
  bool keeps_rank_order = false;
  // Why it cannot serve ranks on these hosts (of each rank), as the end of a sentence that begins
  // with the name; empty where it can.
  std::string (*refusal)(const std::vector<int>& host) = nullptr;
  // Goal::kSumEverywhere. Throws Error(kInvalid) as the functions of algorithms.h do.
  Plan (*make)(const Request& request) = nullptr;
  // Elements from request.scratch on that the plan uses on some rank; none uses more.
  std::size_t (*scratch)(const Request& request) = nullptr;
  bool updates = false;  // can serve request.update
  // The algorithm, before it in the table, whose plan for a request is the same, step by step;
  // empty: its plan is its own. Null: it always is.
  std::string_view (*same)(const Request& request) = nullptr;
};

// In an order that never changes: of two that are as good the first is taken.
std::span<const Algorithm> all_reduce_algorithms();

// Throws Error(kInvalid) naming all that there are.
const Algorithm& find_algorithm(std::string_view name,
                                std::span<const Algorithm> among = all_reduce_algorithms());

}  // namespace lockstep::collectives
