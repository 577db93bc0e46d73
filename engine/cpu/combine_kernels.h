// SPDX-License-Identifier: MIT
// The kernels of `combine` (engine/cpu/combine.h) for whole groups (engine/cpu/groups.h). Compiled
// for each instruction set and chosen at run time. A pure function; thread-safe.
#pragma once
#include <array>
#include <cstddef>

#include "engine/cpu/groups.h"
#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

// Describes a call; see Combination. Integers are not scaled. Operations other than sums take two
// sources.
struct CombineGroups {
  DType source = DType::kFloat32, target = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::array<const std::byte*, kSummedAtOnce> from = {};  // first elements
  std::size_t sources = 0;
  Targets targets;
  std::size_t groups = 0;
  double scale = 1;
  bool read_ahead = false;
};

void combine_groups(const CombineGroups& groups);

}  // namespace lockstep::engine::cpu
