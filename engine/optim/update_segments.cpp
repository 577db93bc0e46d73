// SPDX-License-Identifier: MIT
#include "engine/optim/update_segments.h"

namespace lockstep::strategies {

using engine::UpdateSegment;

bool decays(const engine::UpdateRule& rule, const engine::Parameter& parameter) {
  return rule.decay_all || parameter.group == engine::Group::kWeight;
}

std::vector<UpdateSegment> update_segments(const engine::UpdateRule& rule,
                                           const std::vector<engine::Parameter>& layout,
                                           std::size_t trainable) {
  const bool adapts = rule.needs() == engine::Needs::kLayerNorms;
  if (!adapts && (rule.weight_decay == 0 || rule.decay_all)) return {};
  std::vector<UpdateSegment> segments;
  for (const engine::Parameter& parameter : layout) {
    if (parameter.frozen || parameter.range.empty()) continue;
    const UpdateSegment next{trainable, decays(rule, parameter),
                             adapts && parameter.group == engine::Group::kWeight};
    if (!segments.empty()) {
      if (segments.back() == next && !next.adapts) continue;
      segments.back().end = parameter.range.begin;
    }
    segments.push_back(next);
  }
  return segments;
}

}  // namespace lockstep::strategies
