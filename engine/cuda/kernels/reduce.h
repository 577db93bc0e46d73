// SPDX-License-Identifier: MIT
// Kernel arguments of the arithmetic of collectives (engine/ops/reduce.h) on a GPU. Sums of the
// module's type run at memory speed, alone, with squares, and with the optimizer. One slow kernel
// does everything else. Results have the processor's bits. Pointers are addresses that the GPU can
// access, in its own memory or another's, aligned to the element. An access has 16 bytes if all
// arrays are aligned to 16 at the same element. A target may be the memory of a source; otherwise
// they must not overlap. Grids: any number of blocks of kReduceThreads; `reduce_blocks` fills a
// GPU. With squares, a thread block processes one block of the arena.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/ops/reduce.h"
#include "engine/ops/step_state.h"
#include "engine/ops/update_rule.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

inline constexpr unsigned kReduceThreads = 256;
inline constexpr unsigned kMostPlaces = 64;   // sources, or targets, per call
inline constexpr unsigned kMostOfTree = 7;    // pending sums in a tree of kMostPlaces
inline constexpr unsigned kMostTogether = 8;  // sources whose loads overlap

struct Sources {
  std::array<const void*, kMostPlaces> at{};
  unsigned count = 0;  // at least one
};
struct Targets {
  std::array<void*, kMostPlaces> at{};
  unsigned count = 0;
};

// Holds the operands of an update besides the gradients. If there is a master, as for 16-bit
// weights, `weight` is not read. Slots and masters are float32; for float64 they are float64.
struct UpdateTerms {
  UpdateRule rule;
  const StepState* state = nullptr;  // rate, step and loss scale
  double scale = 1;                  // of the gradients, without `factors`
  double local_rate = 1;             // for LARS
  // True if the first element decays. The value flips at boundaries[0], and at each further
  // boundary.
  bool decays = true;
  unsigned boundary_count = 0;
  std::array<std::size_t, kMostBoundaries> boundaries{};
  const void* weight = nullptr;
  std::array<void*, UpdateRule::kMaxSlots> slots{};
  float* master = nullptr;
  const UpdateFactors* factors = nullptr;  // engine/ops/reduce.h
  const double* found_rate = nullptr;
};

// Computes the sum, times `scale` if it is not 1. With `rounds`, which is for float32 only, it is
// rounded to a number that bfloat16 represents.
struct ReduceSum {
  static constexpr const char* kName = "reduce_sum";
  Sources from;
  Targets to;
  std::size_t count = 0;
  double scale = 1;
  bool rounds = false;
};

// Computes the sum, and for each kBlock elements the sum of the squares of the stored values.
struct ReduceSquares {
  static constexpr const char* kName = "reduce_squares";
  Sources from;
  Targets to;
  std::size_t count = 0;
  // One number per begun block, and one if there are no elements. They are `step` apart.
  double* squares = nullptr;
  std::size_t step = 1;
};

// Updates weights. The sums are gradients; the targets receive the new weights.
struct ReduceUpdate {
  static constexpr const char* kName = "reduce_update";
  Sources from;
  Targets to;
  std::size_t count = 0;
  UpdateTerms terms = {};
};

// Reduces any type by any operation. `target` differs from `dtype` if one source is converted
// between float32 and bfloat16.
struct ReduceAny {
  static constexpr const char* kName = "reduce_any";
  DType dtype = DType::kFloat32, target = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Epilogue epilogue = Epilogue::kNone;
  Sources from;
  Targets to;
  std::size_t count = 0;
  double scale = 1;
  double* squares = nullptr;
  std::size_t step = 1;
  UpdateTerms terms = {};
};

// Returns one block per `of_block` elements, but at most several times as many as run at a time.
constexpr unsigned reduce_blocks(std::size_t count, std::size_t of_block, int multiprocessors) {
  const std::size_t wanted = (count + of_block - 1) / of_block;
  const std::size_t most = std::size_t(multiprocessors) * 32;
  return unsigned(wanted < most ? wanted : most);
}

using ReduceKernels = std::tuple<ReduceSum, ReduceSquares, ReduceUpdate, ReduceAny>;

}  // namespace lockstep::engine::cuda
