// SPDX-License-Identifier: MIT
// The plans of a step whose choices are made (step_design.h): sums and updates of buckets,
// reductions of layers, and the step's other sums. A pure function.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

struct PlanChoices {
  std::string vendor;                 // library that makes the sums; empty: ours
  std::optional<engine::DType> wire;  // gradients between hosts; default: their own type
  std::function<std::string(std::size_t bytes)> algorithm;  // sums other than a vendor's
};

// Adds the plans to a design, with their places in the exchange and the bytes that they need.
void add_plans(const DesignInput& input, const PlanChoices& choices, StepDesign& design);

}  // namespace lockstep::strategies
