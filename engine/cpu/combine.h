// SPDX-License-Identifier: MIT
// Adds sources element by element while they are in registers (or takes the smallest, the largest),
// and stores the result into all targets: each source is read once and each target written once, in
// one pass over memory. The balanced tree of engine/ops/reduce.h, bit for bit. Compiled for each
// instruction set and chosen as the program runs. No state; any thread.
#pragma once
#include <cstddef>
#include <span>

#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

struct Combination {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const std::byte* const> from = {};  // at least one
  std::span<std::byte* const> to = {};    // each the same memory as a source, or apart from all
  std::size_t read_at = 0, write_at = 0;  // the first element of each source, of each target
  std::size_t count = 0;
  double scale = 1;     // floating-point sums are multiplied by it; `scales_in_registers`
  bool stream = false;  // store past the caches; where all targets are aligned alike
};

void combine(const Combination& combination);

// Whether a product with `scale` in the type itself has the bits of one in double precision.
bool scales_in_registers(DType dtype, double scale);

}  // namespace lockstep::engine::cpu
