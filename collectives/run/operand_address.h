// SPDX-License-Identifier: MIT
// Addresses of a plan's operands in this process, in its current execution. The team and the ops
// outlive it.
#pragma once
#include <cstddef>

#include "collectives/run/plan_state.h"
#include "collectives/run/team.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

class OperandAddress {
 public:
  OperandAddress(const Team& team, const engine::Ops& ops) : team_(team), ops_(ops) {}

  std::byte* operator()(const PlanState& plan, const Operand& operand, DType dtype,
                        std::size_t element) const {
    std::size_t at = operand.offset + element;
    if (operand.space == Space::kScratch && plan.completed.load(std::memory_order_relaxed) % 2 != 0)
      at += plan.stage->plan.alternate;
    // Scratch memory of sums by the host, beside a device, lies behind the numbers that are
    // exchanged.
    const bool shared =
        operand.space == Space::kScratch && plan.stage->by_host && !ops_.in_host_memory();
    const std::size_t width =
        engine::size_of(operand.space == Space::kNorms ? DType::kFloat64 : dtype);
    return team_.base(operand.rank, shared ? Space::kExchange : operand.space) + at * width;
  }

 private:
  const Team& team_;
  const engine::Ops& ops_;
};

}  // namespace lockstep::collectives
