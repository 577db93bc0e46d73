// SPDX-License-Identifier: MIT
// Table of all all-reduce algorithms. The planner chooses from it, users name its entries, and
// tests iterate over it. Entries are plain values without state and thread-safe. Functions that
// choose take the table as an argument, so that callers can offer other algorithms.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/request.h"

namespace lockstep::collectives {

struct Algorithm {
  std::string_view name;  // for flags and Plan::algorithm
  // If true, sums are the same balanced tree over the ranks in their order, for all ranges and
  // hosts. (Sums of 16-bit types may round at other points than those of another algorithm.)
  bool keeps_rank_order = false;
  // Returns why it cannot serve ranks on these hosts, as the end of a sentence that begins with the
  // name. Empty if it can. `host`: one entry per rank.
  std::string (*refusal)(const std::vector<int>& host) = nullptr;
  // Makes a plan for Goal::kSumEverywhere. Throws Error(kInvalid) as the functions of algorithms.h
  // do.
  Plan (*make)(const Request& request) = nullptr;
  // Returns the scratch of the rank that uses most, in elements from request.scratch on.
  std::size_t (*scratch)(const Request& request) = nullptr;
  bool updates = false;  // supports request.update
  // Returns the earlier algorithm in the table whose plan for a request is the same step by step;
  // empty if there is none. Null: there never is one.
  std::string_view (*same)(const Request& request) = nullptr;
};

// Returns the table. Its order never changes: of two equally good algorithms, the first is chosen.
std::span<const Algorithm> all_reduce_algorithms();

// Returns the algorithm of this name. Throws Error(kInvalid) that lists the known names.
const Algorithm& find_algorithm(std::string_view name,
                                std::span<const Algorithm> among = all_reduce_algorithms());

}  // namespace lockstep::collectives
