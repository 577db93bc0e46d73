// SPDX-License-Identifier: MIT
// Arguments of the kernels that make the updates of one rank, and the squares that these need: the
// optimizer's state, what is found of all gradients first (norms, factors), and how much of an
// arena whose segments are not alike a call of a kernel is about. Each executor owns one and calls
// it under its lock; the team and the ops outlive it.
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

  // Bytes that the updates of all ranks of this host touch in one step: gradients, weights, slots.
  std::size_t touched_bytes(const StepPlan& step) const;
  // Before the first update of an execution, on ranks that own nothing, too: all have the same.
  // Queued where kernels are, behind the squares.
  void find_factors(const engine::StepState* state, std::uint64_t execution);

  // Returns whether calls for the step are about segments, each with arguments of its own.
  bool by_segments(const Step& step) const;
  // Returns whether a call may go on over segments that differ in their decay alone.
  bool joins_segments(const Step& step) const;
  // Lessens `arguments.count`, of elements from `at` on, to what one call is about, and tells where
  // the decay changes among them. Returns the first one's segment.
  std::size_t cut(const Step& step, std::size_t at, bool joins, engine::ReduceArguments& arguments);
  // Adds what an update of the cursor's next elements reads and writes.
  void add_update(const PlanState& plan, Cursor& cursor, const Step& step,
                  engine::ReduceArguments& arguments) const;
  // Adds what is the segment's own, to elements from `at` on. Squares of weights are taken here.
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
  std::size_t elements_;                 // owned
  std::vector<std::size_t> boundaries_;  // of the call that is being made
  engine::Buffer own_found_;             // where OwnedState has none
  std::uint64_t found_ = 0;              // the execution, from 1, that it was found in last
};

}  // namespace lockstep::collectives
