// SPDX-License-Identifier: MIT
// Texts about a step: see step_design.h.
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/quantity.h"
#include "strategies/synchronous/algorithm_words.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

std::string bucket_name(std::size_t index, engine::Range bucket, const engine::Graph& graph) {
  constexpr std::size_t kMostNames = 160;  // bytes
  std::string names;
  std::size_t more = 0;  // number of unnamed parameters
  for (const engine::Parameter& parameter : graph.layout()) {
    if (!parameter.range.meets(bucket)) continue;
    if (more > 0 || names.size() + parameter.name.size() > kMostNames) {
      ++more;
    } else {
      names += (names.empty() ? "" : " ") + parameter.name;
    }
  }
  if (more > 0) names += fmt::format("{}... and {} more", names.empty() ? "" : " ", more);
  return fmt::format("bucket {} ({})", index, names);
}

bool unlike_processors(const collectives::Topology& topology) {
  const auto kind = [](const collectives::Topology::Rank& rank) {
    return rank.device.substr(0, rank.device.find(':'));
  };
  const auto other_cpu = [&](const auto& host) { return host.cpu != topology.hosts[0].cpu; };
  const auto other_kind = [&](const auto& rank) { return kind(rank) != kind(topology.ranks[0]); };
  return std::ranges::any_of(topology.hosts, other_cpu) ||
         std::ranges::any_of(topology.ranks, other_kind);
}

std::string sentence(const StepDesign& design, bool recorded) {
  const bool alone = !design.plan.empty() && design.plan[0].plan.ranks() == 1;
  std::string text = fmt::format("all-reduce: {}, update {}",
                                 alone                       ? "none for one replica"
                                 : design.algorithms.empty() ? design.algorithm
                                                             : counted(design.algorithms),
                                 name(design.update));
  if (!design.predicted.empty()) text += "; " + design.predicted;
  if (recorded) text += "; as in the checkpoint";
  text += fmt::format("\nbuckets: {} of up to {}\nreason: {}\nupdate: {}, because {}",
                      design.buckets.size(), engine::bytes_text(double(design.bucket_bytes)),
                      design.reason.text(), name(design.update), design.update_reason.text());
  if (!design.other_algorithms.empty())
    text +=
        fmt::format("\nother sums of a step use {}", fmt::join(design.other_algorithms, " and "));
  return text;
}

}  // namespace lockstep::strategies
