// SPDX-License-Identifier: MIT
// Collectives on the memory of all ranks, computed on the host at once. Sums go around the ranks
// like those of a ring: each element starts at another rank and is rounded at each addition.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::collectives::nccl {

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

// Holds the operands of one rank. If they overlap, the result is the same as for separate operands.
struct Operand {
  const void* from;
  void* to;
};

// Runs the collective. `count`: elements as NCCL counts them, of one rank's part if there are
// parts. `root`: for broadcasts.
void run(Kind kind, const std::vector<Operand>& ranks, std::size_t count, engine::DType dtype,
         int root);

}  // namespace lockstep::collectives::nccl
