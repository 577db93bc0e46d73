// SPDX-License-Identifier: MIT
// The arithmetic of collectives: add several sources element by element while they are in
// registers, do one more thing (the epilogue), store the result into several places.
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

// Integers wrap around. Of minima and maxima a number that is none (NaN) wins over all numbers.
enum class ReduceOp : std::uint8_t { kSum, kMin, kMax, kProduct };

enum class Epilogue : std::uint8_t {
  kNone,
  kScale,    // multiply by `scale` (a mean: 1 / ranks)
  kSquares,  // also write the sum of the squares of each block to `squares`
  kUpdate,   // the sums are gradients: update slots, and store new weights instead of sums
  kRound,    // float32: round to the nearest number that bfloat16 has, and store that as float32
};

// Elements. Arenas are cut into blocks of this size, counted from the arena's beginning: buckets
// and slices end only there, and sums of squares are taken per block, so that a norm has the same
// bits however the arena is sliced. 4 KiB in float32.
inline constexpr std::size_t kBlock = 1024;

// Sources of a sum that are added in one pass over memory; more are added in parts.
inline constexpr std::size_t kSummedAtOnce = 4;

// Boundaries between what decays and what does not, in one update (UpdateOperands::boundaries).
inline constexpr std::size_t kMostBoundaries = 64;

// What an update keeps of each weight, in computed_in(dtype): the rule's slots, and behind them of
// weights of 16 bits the master: the weight itself in float32, without which a step smaller than
// half the distance between two such numbers would be lost.
inline bool has_master(DType weights) {
  return size_of(weights) == 2;
}
inline std::size_t values_kept(const UpdateRule& rule, DType weights) {
  return rule.slots() + (has_master(weights) ? 1 : 0);
}

// The operands of an update inside of a reduction, beside the gradients.
struct UpdateOperands {
  const UpdateRule* rule = nullptr;
  const StepState* state = nullptr;   // rate and step
  const std::byte* weight = nullptr;  // the old weights
  bool decays = true;                 // whether they decay ...
  // ... of elements from the first of these on the opposite, from the second on as before, and so
  // on: ascending, inside of `count`, at most kMostBoundaries; none where memory is the host's.
  std::span<const std::size_t> boundaries = {};
  double local_rate = 1;                                  // lars: times the rate
  std::array<std::byte*, UpdateRule::kMaxSlots> slots{};  // what the optimizer keeps
  // The factors that were found of all gradients first (engine/ops/update_factors.h), if any were.
  // They stand instead of `scale` and of the state's step and loss scale, and `found_rate`, where
  // it is given, instead of `local_rate`. Where they say that the step is skipped nothing is read
  // or written.
  const UpdateFactors* factors = nullptr;
  const double* found_rate = nullptr;
  // The master of weights of 16 bits: the old weights in float32, which become the new ones; those
  // at `weight` are not read. Gradients are added, the rule applied and slots kept in float32, and
  // nothing is rounded in between; targets get the master rounded to the nearest, of two as near
  // the even one.
  std::byte* master = nullptr;
};

// Of kSquares at most one block where memory is the host's, else as many elements as one likes.
// Sources are added as a balanced tree in the order given: of n sources, the first (n + 1) / 2 and
// the rest, each added by the same rule. A target may be the same memory as a source, else it lies
// apart from all of them. Pointers are aligned to the element.
//
// float16 and bfloat16 are computed as float32: the whole tree, then the product with `scale`,
// which is taken as a float32 too. Then they are rounded once, to the nearest, of two as near the
// even one: what is too large becomes infinite, what is no number stays none. One source alone is
// copied bit by bit. That holds for one reduction: an all-reduce in several hops (ring,
// halving-doubling, hierarchies between hosts) keeps its partial sums in the elements' type and
// rounds at each hop.
struct ReduceArguments {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const std::byte* const> from;  // at least one
  std::span<std::byte* const> to;          // may be empty with kSquares
  std::size_t count = 0;                   // elements
  // For targets that are not read and will not be soon: may be written past the caches. Of kUpdate
  // all but the one that is `weight`.
  bool stream = false;
  // Of several targets that are sources, of which there are kSummedAtOnce at most: lines of sources
  // are asked for ahead to be read, not those of targets to be written. What is faster depends on
  // the processor.
  bool read_ahead = false;
  // Of the targets, where not `dtype`: bfloat16, rounded from one source of float32, or float32
  // from one of bfloat16. Without an epilogue.
  std::optional<DType> target = {};
  Epilogue epilogue = Epilogue::kNone;
  // kScale: of the result; kUpdate: of the gradients, which are divided by the state's loss scale,
  // too.
  double scale = 1;
  double* squares = nullptr;     // kSquares: one number for each block that begins ...
  std::size_t squares_step = 1;  // ... and so many further on that of the next
  UpdateOperands update = {};    // kUpdate
};

// Of kUpdate, where kernels read memory of the host: what gradients are multiplied by, how many
// updates there were before this one, lars' local rate, and whether there is no update at all.
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
