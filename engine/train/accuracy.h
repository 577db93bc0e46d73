// SPDX-License-Identifier: MIT
// The part of right answers of a replica's loss; NaN where the loss counts none.
#pragma once
#include <limits>

#include "engine/train/strategy.h"

namespace lockstep::engine {

inline double accuracy(const Replica& r, double correct, double examples) {
  if (!r.graph.correct()) return std::numeric_limits<double>::quiet_NaN();
  return examples > 0 ? correct / examples : 0;
}

}  // namespace lockstep::engine
