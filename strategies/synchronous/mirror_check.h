// SPDX-License-Identifier: MIT
// Comparison of mirrors by the hashes that each rank takes of its weights in a step
// (weight_checks.h) and then shares with all ranks. All ranks make the same calls on their
// replicas' threads.
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

// Refers to one hash per rank: rank r's is `first[r * stride]`.
struct MirrorHashes {
  const double* first = nullptr;
  std::size_t stride = 1, ranks = 0;
  bool equal() const;
};

// Returns all ranks' numbers, rank by rank (engine::Strategy::gather).
using Gather =
    std::function<std::vector<double>(std::span<const double> mine, std::string_view what)>;

// Throws Error(kCorrupt) for unequal hashes of `step`. The error names the first parameter that
// differs, and the ranks that differ from most others. `most`: maximum numbers per gather.
[[noreturn]] void fail_unequal_mirrors(const WeightChecks& checks, std::size_t ranks,
                                       std::int64_t step, std::size_t most, const Gather& gather);

// Returns a sentence about the scope, interval and limits of the comparison.
std::string sentence(const WeightChecks& checks, Update update);

}  // namespace lockstep::strategies
