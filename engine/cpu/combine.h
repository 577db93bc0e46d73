// SPDX-License-Identifier: MIT
// Combines sources element by element in registers (sum, product, minimum or maximum), and stores
// the result to all targets. One pass over memory reads each source once and writes each target
// once. The balanced tree is that of engine/ops/reduce.h, bit for bit. Compiled for each
// instruction set and chosen at run time. No state; thread-safe.
#pragma once
#include <cstddef>
#include <span>

#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

struct Combination {
  // Types of the elements. They differ only inside `combine`: sums of 16-bit numbers are float32
  // between two passes.
  DType source = DType::kFloat32, target = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const std::byte* const> from = {};  // at least one
  std::span<std::byte* const> to = {};          // each is a source or disjoint from all
  std::size_t read_at = 0, write_at = 0;        // first element of sources, of targets
  std::size_t count = 0;
  // Factor of sums of floating-point numbers; see `scales_in_registers`.
  double scale = 1;
  bool stream = false;  // non-temporal stores, if targets are aligned alike
  // Prefetches lines of sources instead of targets. Applies if several targets are in place and all
  // sources are combined in one pass.
  bool read_ahead = false;
};

void combine(const Combination& combination);

// Returns whether multiplying by `scale` in registers, in the type itself or in float32, gives the
// specified bits.
bool scales_in_registers(DType dtype, double scale);

}  // namespace lockstep::engine::cpu
