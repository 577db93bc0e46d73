// SPDX-License-Identifier: MIT
// Request: what an algorithm is asked for, as a value. An algorithm is a pure function from a
// request to a plan.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::collectives {

struct Request {
  std::string name;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool mean = false;  // divide sums by the ranks; not for integers
  Range subject;      // range in `space`
  Space space = Space::kGradient;
  std::vector<int> host;  // one entry per rank
  // All ranks, in the order in which a ring visits each host (ring_order.h). Empty: by number.
  std::vector<int> order = {};
  bool squares = false;  // write the result's squares into all ranks' norms
  // The sums are gradients. Each number is updated once, where its whole sum is first known. All
  // ranks end with the new weights (Space::kWeight) instead of sums. Only plain sums allow an
  // update.
  bool update = false;
  // If bfloat16, float32 sums and partial sums are rounded when they travel between hosts. All
  // ranks end with the same rounded sums. Updated weights travel unrounded. On one host it has no
  // effect. Only plain sums allow it. A ring of H hosts rounds a sum at most H + 1 times, halving
  // among n ranks at most log2 n + 2 times. A sum beyond 3.39e38 becomes infinite.
  std::optional<DType> wire = {};
  int rotation = 0;         // rank with the first slice; differs per bucket
  int root = 0;             // source rank of a broadcast
  std::size_t scratch = 0;  // start of this plan's scratch, in elements
  // Bytes per message of algorithms with many messages in flight (approximate). One call of
  // Executor::progress adds as many bytes. A message in flight is still in the cache when it is
  // added. Half or twice the size does not increase bandwidth.
  std::size_t chunk_bytes = std::size_t(256) << 10;
};

// Returns part `part` of `parts` nearly equal parts of `subject`, cut at engine::kBlock. It may be
// empty.
Range slice(Range subject, int part, int parts);

}  // namespace lockstep::collectives
