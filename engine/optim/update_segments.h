// SPDX-License-Identifier: MIT
// Which stretches of the arena of gradients an optimizer treats alike: those that decay and those
// that do not, and for an optimizer that needs norms of layers each weight by itself. A pure
// function of the layout, which is the same on all ranks, so that an element is updated alike
// however the arena is sliced.
#pragma once
#include <vector>

#include "engine/nn/graph.h"
#include "engine/ops/update_rule.h"

namespace lockstep::engine {

// Whether the rule's weight decay is of this parameter.
bool decays(const UpdateRule& rule, const Parameter& parameter);

// Up to the end of what is trainable, the padding behind a parameter with it. None: all are alike,
// and decay.
std::vector<UpdateSegment> update_segments(const UpdateRule& rule,
                                           const std::vector<Parameter>& layout,
                                           std::size_t trainable);

}  // namespace lockstep::engine
