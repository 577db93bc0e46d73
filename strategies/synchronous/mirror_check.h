// SPDX-License-Identifier: MIT
// Whether mirrors are still equal, by the hashes that each rank takes of its weights in a step
// (weight_checks.h) and that all ranks then have. Called alike by all ranks, on their replicas'
// threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/synchronous/step_choices.h"
#include "strategies/synchronous/weight_checks.h"

namespace lockstep::strategies {

// A hash of each rank: rank r's is `first[r * stride]`.
struct MirrorHashes {
  const double* first = nullptr;
  std::size_t stride = 1, ranks = 0;
  bool equal() const;
};

// Returns everybody's numbers, rank by rank (engine::Strategy::gather).
using Gather =
    std::function<std::vector<double>(std::span<const double> mine, std::string_view what)>;

// Throws Error(kCorrupt) for hashes of `step` that are not equal: names the first parameter that
// differs, and the ranks on which it differs from most. `most`: numbers that a gather takes.
[[noreturn]] void fail_unequal_mirrors(const WeightChecks& checks, std::size_t ranks,
                                       std::int64_t step, std::size_t most, const Gather& gather);

// Returns a sentence on what is compared how often, and on what that does not find.
std::string sentence(const WeightChecks& checks, Update update);

}  // namespace lockstep::strategies
