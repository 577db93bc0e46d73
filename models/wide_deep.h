// SPDX-License-Identifier: MIT
// Wide & deep (Cheng et al. 2016), which predicts clicks for examples in the format of Criteo's
// data: 13 numbers, then 26 IDs, one per field. The wide part adds a weight per ID and a linear map
// of the numbers. The deep part has three hidden layers over the numbers and an embedding of each
// ID. Their sum is the logits of the two classes. A value; each call builds a new one.
#pragma once
#include <cstddef>

#include "engine/nn/graph_spec.h"

namespace lockstep::models {

struct WideDeepOptions {
  // IDs per field, 0 .. buckets - 1. 26 fields have 1,000,012 rows.
  std::size_t buckets = 38462;
  std::size_t columns = 8;  // of an embedding
};
engine::GraphSpec wide_deep(const WideDeepOptions& options);
engine::GraphSpec wide_deep();      // 1,000,012 rows, 10,098,260 parameters
engine::GraphSpec wide_deep_10m();  // 384,616 IDs a field, 10,000,016 rows, 100,098,300 parameters

}  // namespace lockstep::models
