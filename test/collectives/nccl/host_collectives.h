// SPDX-License-Identifier: MIT
// What a collective makes of the memory of all its ranks, computed on the host at once. Sums go
// round the ranks, each element from another one on and rounded at each addition, as a ring's do.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::collectives::nccl {

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

// Of one rank; where they overlap the result is that of operands that do not.
struct Operand {
  const void* from;
  void* to;
};

// `count`: as NCCL counts: of a rank's part where there are parts. `root`: of broadcasts.
void run(Kind kind, const std::vector<Operand>& ranks, std::size_t count, engine::DType dtype,
         int root);

}  // namespace lockstep::collectives::nccl
