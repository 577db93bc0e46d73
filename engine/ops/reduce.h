// SPDX-License-Identifier: MIT
// The arithmetic of collectives: adds several sources element by element in registers, applies one
// more operation (the epilogue), and stores the result to several targets.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/ops/step_state.h"
#include "engine/ops/update_factors.h"
#include "engine/ops/update_rule.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// Integers wrap around. kMin and kMax propagate NaN.
enum class ReduceOp : std::uint8_t { kSum, kMin, kMax, kProduct };

// Names the operation that a reduction applies to its results.
enum class Epilogue : std::uint8_t {
  kNone,
  kScale,    // multiply by `scale` (a mean: 1 / ranks)
  kSquares,  // also write each block's sum of squares
  kUpdate,   // sums are gradients: update slots, store new weights
  kRound,    // float32: round to bfloat16, store as float32
};

// Elements of a block. Arenas are divided into blocks of this size, counted from the arena's
// beginning. Buckets and slices end only at block boundaries. Sums of squares are taken per block,
// so a norm has the same bits however the arena is sliced. 4 KiB in float32.
inline constexpr std::size_t kBlock = 1024;

// Sources that are added in one pass over memory; more are added in parts.
inline constexpr std::size_t kSummedAtOnce = 4;

// Boundaries between decaying and other elements in one update (UpdateOperands::boundaries).
inline constexpr std::size_t kMostBoundaries = 64;

// The values that an update keeps per weight, in computed_in(dtype): the rule's slots, and for
// 16-bit weights the master, which is the weight in float32. Without the master, a step smaller
// than half the distance between two adjacent 16-bit numbers would be lost.
inline bool has_master(DType weights) {
  return size_of(weights) == 2;
}
inline std::size_t values_kept(const UpdateRule& rule, DType weights) {
  return rule.slots() + (has_master(weights) ? 1 : 0);
}

// Holds the operands of an update inside a reduction, besides the gradients.
struct UpdateOperands {
  const UpdateRule* rule = nullptr;
  const StepState* state = nullptr;   // learning rate and step
  const std::byte* weight = nullptr;  // the old weights
  bool decays = true;                 // whether the first elements decay
  // Boundaries at which `decays` flips: ascending, inside of `count`, at most kMostBoundaries.
  // Empty for kernels on host memory.
  std::span<const std::size_t> boundaries = {};
  double local_rate = 1;                                  // lars: factor of the learning rate
  std::array<std::byte*, UpdateRule::kMaxSlots> slots{};  // state of the optimizer
  // Factors computed from all gradients (engine/ops/update_factors.h); may be null. They replace
  // `scale` and the state's step and loss scale; `found_rate`, if given, replaces `local_rate`. If
  // they say that the step is skipped, nothing is read or written.
  const UpdateFactors* factors = nullptr;
  const double* found_rate = nullptr;
  // The master of 16-bit weights: the old weights in float32, overwritten by the new ones. `weight`
  // is then not read. Gradients are added, the rule is applied and slots are kept in float32,
  // without rounding in between. Targets receive the master rounded to the nearest, ties to even.
  std::byte* master = nullptr;
};

// Describes a reduction. kSquares takes at most one block on host memory, else any number of
// elements. Sources are added as a balanced tree in the given order: of n sources, the first (n +
// 1) / 2 and the rest, each added by the same rule. A target is either the same memory as a source
// or disjoint from all of them. Pointers are aligned to the element.
//
// float16 and bfloat16 are computed as float32: the whole tree, then the product with `scale`,
// which is rounded to float32 too. The result is rounded once, to the nearest, ties to even;
// overflow gives infinity, and NaN stays NaN. A single source is copied bit by bit. This holds for
// one reduction: an all-reduce in several hops (ring, halving-doubling, hierarchies between hosts)
// keeps its partial sums in the elements' type and rounds at each hop.
struct ReduceArguments {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const std::byte* const> from;  // at least one
  std::span<std::byte* const> to;          // may be empty with kSquares
  std::size_t count = 0;                   // elements
  // Allows non-temporal stores, for targets that are not read soon. kUpdate applies it to all
  // targets except the one that is `weight`.
  bool stream = false;
  // Prefetches lines of sources for reading instead of lines of targets for writing. It applies if
  // several targets are sources and there are at most kSummedAtOnce sources. Which is faster
  // depends on the processor.
  bool read_ahead = false;
  // The targets' type if it is not `dtype`: bfloat16 from one source of float32, rounded, or
  // float32 from one source of bfloat16. Not valid with an epilogue.
  std::optional<DType> target = {};
  Epilogue epilogue = Epilogue::kNone;
  // kScale: factor of the result. kUpdate: factor of the gradients, which are also divided by the
  // state's loss scale.
  double scale = 1;
  double* squares = nullptr;     // kSquares: one number per block
  std::size_t squares_step = 1;  // distance between the numbers of adjacent blocks
  UpdateOperands update = {};    // kUpdate
};

// These serve kUpdate on host memory. They return the factor of the gradients, the number of
// earlier updates, the local rate of lars, and whether the update is skipped.
inline double gradient_scale(const ReduceArguments& a) {
  return a.update.factors != nullptr ? a.update.factors->scale
                                     : a.scale / a.update.state->loss_scale;
}
inline std::int64_t updates_before(const ReduceArguments& a) {
  return a.update.factors != nullptr ? a.update.factors->updates : a.update.state->step;
}
inline double local_rate_of(const ReduceArguments& a) {
  return a.update.found_rate != nullptr ? *a.update.found_rate : a.update.local_rate;
}
inline bool is_skipped(const ReduceArguments& a) {
  return a.update.factors != nullptr && a.update.factors->skipped;
}

}  // namespace lockstep::engine
