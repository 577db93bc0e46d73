// SPDX-License-Identifier: MIT
// Segments of the gradient arena that an optimizer treats alike: those that decay and those that do
// not, or each weight by itself if the optimizer needs norms of layers. A pure function of the
// layout, which is the same on all ranks. An element is therefore updated alike however the arena
// is sliced.
#pragma once
#include <vector>

#include "engine/nn/graph.h"
#include "engine/ops/update_rule.h"

namespace lockstep::engine {

// Returns whether the rule's weight decay applies to this parameter.
bool decays(const UpdateRule& rule, const Parameter& parameter);

// Returns segments up to the end of the trainable parameters; padding belongs to the parameter
// before it. Returns none if all are alike and decay.
std::vector<UpdateSegment> update_segments(const UpdateRule& rule,
                                           const std::vector<Parameter>& layout,
                                           std::size_t trainable);

}  // namespace lockstep::engine
