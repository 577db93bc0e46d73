// SPDX-License-Identifier: MIT
// The kernels of `update` (engine/cpu/update.h), for whole groups (engine/cpu/groups.h). Compiled
// for each instruction set and chosen as the program runs. A pure function; any thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/cpu/groups.h"
#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

// The rules of engine/ops/update_rule.h as the kernels know them.
enum class UpdateFormula : std::uint8_t { kPlain, kMomentum, kAdam, kLars };

// What does not depend on the element. Kernels take them in the type that they compute in.
struct UpdateTerms {
  double scale = 1, rate = 0, decay = 0;
  double momentum = 0, of_gradient = 0, of_velocity = 1;           // the latter two of sgd
  double epsilon = 0, beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0;  // adam
  double shrink = 0, correct2 = 1;
};

struct UpdateGroups {
  DType dtype = DType::kFloat32;  // of the weights
  bool added = false;             // the gradients are one sum, in the type that is computed in
  std::array<const std::byte*, 4> from = {};
  std::size_t sources = 0;
  // The old weights: of 16 bits those in `master`, which become the new ones.
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
