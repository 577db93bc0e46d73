// SPDX-License-Identifier: MIT
// Arguments of the kernels that make the updates of one rank, and of the squares that these need.
// They have the optimizer's state, and what is derived from all gradients first (norms, factors).
// If the arena's segments differ, they also limit the elements of a kernel call. Each executor owns
// one and calls it under its lock; the team and the ops outlive it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/run/owned_state.h"
#include "collectives/run/plan_state.h"
#include "collectives/run/team.h"
#include "engine/device/buffer.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

class UpdateArguments {
 public:
  UpdateArguments(int rank, const Team& team, const engine::Ops& ops, OwnedState owned);

  // Returns the bytes that the updates of all ranks of this host touch in one step: gradients,
  // weights, slots.
  std::size_t touched_bytes(const StepPlan& step) const;
  // Finds the factors, before the first update of an execution. All ranks have the same, even those
  // that own nothing. If kernels are queued, this is queued behind the squares.
  void find_factors(const engine::StepState* state, std::uint64_t execution);

  // Returns whether calls for the step handle one segment each, with its own arguments.
  bool by_segments(const Step& step) const;
  // Returns whether a call may go on over segments that differ only in their decay.
  bool joins_segments(const Step& step) const;
  // Limits `arguments.count`, of elements from `at` on, to what one call handles, and sets where
  // the decay changes among them. Returns the first one's segment.
  std::size_t cut(const Step& step, std::size_t at, bool joins, engine::ReduceArguments& arguments);
  // Adds the memory that an update of the cursor's next elements reads and writes.
  void add_update(const PlanState& plan, Cursor& cursor, const Step& step,
                  engine::ReduceArguments& arguments) const;
  // Adds the segment's own arguments, for elements from `at` on. Takes the squares of weights.
  void add_segment(std::size_t segment, std::size_t at, engine::ReduceArguments& arguments) const;
  double* norms() const;

 private:
  std::byte* weight(std::size_t at, DType dtype) const;
  std::size_t join(std::size_t segment, std::size_t at, std::size_t count);
  void take_weight_squares(std::size_t at, const engine::ReduceArguments& of_gradients) const;

  int rank_;
  const Team& team_;
  const engine::Ops& ops_;
  OwnedState owned_;
  std::size_t elements_;                 // owned elements
  std::vector<std::size_t> boundaries_;  // boundaries of the current call
  engine::Buffer own_found_;             // if OwnedState has none
  std::uint64_t found_ = 0;              // last execution with factors, from 1
};

}  // namespace lockstep::collectives
