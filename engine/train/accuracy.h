// SPDX-License-Identifier: MIT
// The fraction of correct answers of a replica's loss; NaN if the loss does not count them.
#pragma once
#include <limits>

#include "engine/train/strategy.h"

namespace lockstep::engine {

inline double accuracy(const Replica& r, double correct, double examples) {
  if (!r.graph.correct()) return std::numeric_limits<double>::quiet_NaN();
  return examples > 0 ? correct / examples : 0;
}

}  // namespace lockstep::engine
