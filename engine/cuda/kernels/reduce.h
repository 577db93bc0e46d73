// SPDX-License-Identifier: MIT
// The arithmetic of collectives (engine/ops/reduce.h) on a GPU: arguments of its kernels. Sums of
// the module's type at the speed of memory, alone, with squares, and with the optimizer; all else
// by one slow kernel. Bits are those of the processor. Pointers are addresses that the GPU reaches,
// of its own memory or of another's, aligned to the element; at 16 bytes, all of them at the same
// element, an access is of 16 bytes. A target may be the memory of a source, else it lies apart
// from all of them. Grids: any number of blocks of kReduceThreads, `reduce_blocks` fills a GPU;
// with squares a block of threads has one block of the arena.
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
inline constexpr unsigned kMostPlaces = 64;   // sources, or targets, of one call
inline constexpr unsigned kMostOfTree = 7;    // sums that a tree of so many sources has open
inline constexpr unsigned kMostTogether = 8;  // sources whose loads are under way together

struct Sources {
  std::array<const void*, kMostPlaces> at{};
  unsigned count = 0;  // at least one
};
struct Targets {
  std::array<void*, kMostPlaces> at{};
  unsigned count = 0;
};

// What an update needs besides the gradients. `weight` is not read where there is a master, which
// weights of 16 bits have. Slots and masters are float32, those of float64 float64.
struct UpdateTerms {
  UpdateRule rule;
  const StepState* state = nullptr;  // rate, step and loss scale
  double scale = 1;                  // of the gradients, where nothing was found of them all
  double local_rate = 1;             // lars
  bool decays = true;  // of the first element; of boundaries[0] and behind it the opposite, ...
  unsigned boundary_count = 0;
  std::array<std::size_t, kMostBoundaries> boundaries{};
  const void* weight = nullptr;
  std::array<void*, UpdateRule::kMaxSlots> slots{};
  float* master = nullptr;
  const UpdateFactors* factors = nullptr;  // engine/ops/reduce.h
  const double* found_rate = nullptr;
};

// The sum, times `scale` where it is not 1; with `rounds`, of float32 alone, rounded to a number
// that bfloat16 has.
struct ReduceSum {
  static constexpr const char* kName = "reduce_sum";
  Sources from;
  Targets to;
  std::size_t count = 0;
  double scale = 1;
  bool rounds = false;
};

// The sum, and of each kBlock elements the sum of the squares of what is stored.
struct ReduceSquares {
  static constexpr const char* kName = "reduce_squares";
  Sources from;
  Targets to;
  std::size_t count = 0;
  double* squares = nullptr;  // for each begun block one number, for no elements one too ...
  std::size_t step = 1;       // ... each so many after the one before
};

// The sums are gradients; targets get the new weights.
struct ReduceUpdate {
  static constexpr const char* kName = "reduce_update";
  Sources from;
  Targets to;
  std::size_t count = 0;
  UpdateTerms terms = {};
};

// Any type and operation; `target` is another type than `dtype` where one source of float32 becomes
// bfloat16, or the other way round.
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

// A block for each `of_block` elements, but no more than several times as many as run at a time.
constexpr unsigned reduce_blocks(std::size_t count, std::size_t of_block, int multiprocessors) {
  const std::size_t wanted = (count + of_block - 1) / of_block;
  const std::size_t most = std::size_t(multiprocessors) * 32;
  return unsigned(wanted < most ? wanted : most);
}

using ReduceKernels = std::tuple<ReduceSum, ReduceSquares, ReduceUpdate, ReduceAny>;

}  // namespace lockstep::engine::cuda
