// SPDX-License-Identifier: MIT
#include "engine/optim/update_segments.h"

namespace lockstep::engine {

bool decays(const UpdateRule& rule, const Parameter& parameter) {
  return rule.decay_all || parameter.group == Group::kWeight;
}

std::vector<UpdateSegment> update_segments(const UpdateRule& rule,
                                           const std::vector<Parameter>& layout,
                                           std::size_t trainable) {
  const bool adapts = rule.needs() == Needs::kLayerNorms;
  if (!adapts && (rule.weight_decay == 0 || rule.decay_all)) return {};
  std::vector<UpdateSegment> segments;
  for (const Parameter& parameter : layout) {
    if (parameter.frozen || parameter.range.empty()) continue;
    const UpdateSegment next{trainable, decays(rule, parameter),
                             adapts && parameter.group == Group::kWeight};
    if (!segments.empty()) {
      if (segments.back() == next && !next.adapts) continue;
      segments.back().end = parameter.range.begin;
    }
    segments.push_back(next);
  }
  return segments;
}

}  // namespace lockstep::engine
