// SPDX-License-Identifier: MIT
#include "strategies/synchronous/mirror_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "engine/base/error.h"

namespace lockstep::strategies {

using engine::Code;

namespace {

// Returns the rank with the most common number, the first if several are equally common. `number`:
// returns a rank's number.
template <class Number>
std::size_t most_common(std::size_t ranks, const Number& number) {
  std::size_t most = 0, common = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t equal = 0;
    for (std::size_t other = 0; other < ranks; ++other) equal += number(rank) == number(other);
    if (equal > common) common = equal, most = rank;
  }
  return most;
}

}  // namespace

bool MirrorHashes::equal() const {
  for (std::size_t rank = 1; rank < ranks; ++rank)
    if (first[rank * stride] != first[0]) return false;
  return true;
}

// All ranks have detected a difference; they exchange hashes to locate it.
void fail_unequal_mirrors(const WeightChecks& checks, std::size_t ranks, std::int64_t step,
                          std::size_t most, const Gather& gather) {
  for (std::size_t first = 0; first < checks.pieces(); first += most) {
    std::vector<double> mine(std::min(most, checks.pieces() - first));
    for (std::size_t k = 0; k < mine.size(); ++k) mine[k] = checks.hash_of(first + k);
    const std::vector<double> all = gather(mine, "comparing mirrors that differ");
    for (std::size_t k = 0; k < mine.size(); ++k) {
      const auto hash = [&](std::size_t rank) { return all[rank * mine.size() + k]; };
      const std::size_t usual = most_common(ranks, hash);
      auto others = std::views::iota(std::size_t(0), ranks) |
                    std::views::filter([&](std::size_t rank) { return hash(rank) != hash(usual); });
      if (others.begin() == others.end()) continue;
      engine::fail(Code::kCorrupt,
                   "mirrors are no longer equal: {} differs on rank {} from rank {} at step {}",
                   checks.parameter(first + k), fmt::join(others, ", "), usual, step);
    }
  }
  engine::fail(Code::kCorrupt, "mirrors are no longer equal at step {}", step);
}

std::string sentence(const WeightChecks& checks, Update update) {
  const bool fused = update == Update::kFused;
  const std::size_t cycle = checks.cycle();
  std::string text = "mirrors: each step compares the weights of all replicas";
  if (cycle > 1) text += fmt::format("; those of large layers take turns within {} steps", cycle);
  text +=
      ". A difference ends the run one step later. The comparison does not find wrong gradients";
  if (fused && cycle > 1)
    text += ", a wrong optimizer state, or a difference that an update overwrites first";
  else if (fused)
    text += " or a wrong optimizer state";
  return text;
}

}  // namespace lockstep::strategies
