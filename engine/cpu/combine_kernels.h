// SPDX-License-Identifier: MIT
// The kernels of `combine` (engine/cpu/combine.h), for whole groups (engine/cpu/groups.h). Compiled
// for each instruction set and chosen as the program runs. A pure function; any thread.
#pragma once
#include <array>
#include <cstddef>

#include "engine/cpu/groups.h"
#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

// Of `from` and `to` the members of Combination say more. Integers are not scaled; of other
// operations than sums there are two sources.
struct CombineGroups {
  DType source = DType::kFloat32, target = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::array<const std::byte*, kSummedAtOnce> from = {};  // the first elements
  std::size_t sources = 0;
  Targets targets;
  std::size_t groups = 0;
  double scale = 1;
  bool read_ahead = false;
};

void combine_groups(const CombineGroups& groups);

}  // namespace lockstep::engine::cpu
