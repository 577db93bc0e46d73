// SPDX-License-Identifier: MIT
// Will somebody click? Wide & deep (Cheng et al. 2016) for examples in the form of Criteo's data:
// 13 numbers, then 26 ids, one of each field. The wide part adds up a weight for each id and a
// linear map of the numbers; the deep part is three hidden layers over the numbers and an embedding
// of each id. Their sum is the logits of the two classes. A value; made anew by each call.
#pragma once
#include <cstddef>

#include "engine/nn/graph_spec.h"

namespace lockstep::models {

struct WideDeepOptions {
  std::size_t buckets = 38462;  // ids of a field, 0 .. buckets - 1: 26 fields are 1,000,012 rows
  std::size_t columns = 8;      // of an embedding
};
engine::GraphSpec wide_deep(const WideDeepOptions& options);
engine::GraphSpec wide_deep();      // 1,000,012 rows, 10,098,260 parameters
engine::GraphSpec wide_deep_10m();  // 384,616 ids a field: 10,000,016 rows, 100,098,300 parameters

}  // namespace lockstep::models
