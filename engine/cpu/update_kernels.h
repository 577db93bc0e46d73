// SPDX-License-Identifier: MIT
// The kernels of `update` (engine/cpu/update.h) for whole groups (engine/cpu/groups.h). Compiled
// for each instruction set and chosen at run time. A pure function; thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/cpu/groups.h"
#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

// Names the kernels' formulas for the rules of engine/ops/update_rule.h.
enum class UpdateFormula : std::uint8_t { kPlain, kMomentum, kAdam, kLars };

// Holds the terms that do not depend on the element. Kernels convert them to the type of
// computation.
struct UpdateTerms {
  double scale = 1, rate = 0, decay = 0;
  double momentum = 0, of_gradient = 0, of_velocity = 1;           // last two: sgd
  double epsilon = 0, beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0;  // adam
  double shrink = 0, correct2 = 1;
};

struct UpdateGroups {
  DType dtype = DType::kFloat32;  // type of the weights
  // If true, `from` is one sum in the type of computation.
  bool added = false;
  std::array<const std::byte*, 4> from = {};
  std::size_t sources = 0;
  // The old weights. For 16-bit types `master` replaces them and receives the new ones.
  const std::byte* weight = nullptr;
  std::byte* master = nullptr;
  std::array<std::byte*, UpdateRule::kMaxSlots> slots = {};
  Targets targets;
  std::size_t groups = 0;
  UpdateFormula formula = UpdateFormula::kPlain;
  UpdateTerms terms;
};

void update_groups(const UpdateGroups& groups);

}  // namespace lockstep::engine::cpu
