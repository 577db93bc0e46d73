// SPDX-License-Identifier: MIT
// Adds sources element by element while they are in registers (or multiplies them, or takes the
// smallest, the largest), and stores the result into all targets: each source is read once and each
// target written once, in one pass over memory. The balanced tree of engine/ops/reduce.h, bit for
// bit. Compiled for each instruction set and chosen as the program runs. No state; any thread.
#pragma once
#include <cstddef>
#include <span>

#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

struct Combination {
  // Of the elements. They differ inside of `combine` alone, where sums of numbers of 16 bits are
  // float32 between two passes.
  DType source = DType::kFloat32, target = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const std::byte* const> from = {};  // at least one
  std::span<std::byte* const> to = {};    // each the same memory as a source, or apart from all
  std::size_t read_at = 0, write_at = 0;  // the first element of each source, of each target
  std::size_t count = 0;
  double scale = 1;     // sums that are no integers are multiplied by it; `scales_in_registers`
  bool stream = false;  // store past the caches; where all targets are aligned alike
  // Of several targets in place, where all sources are added in one go: ask ahead for lines of
  // sources, not of targets.
  bool read_ahead = false;
};

void combine(const Combination& combination);

// Whether a product with `scale` in registers, in the type itself or in float32, has the bits that
// are promised.
bool scales_in_registers(DType dtype, double scale);

}  // namespace lockstep::engine::cpu
