// SPDX-License-Identifier: MIT
// The optimizer inside a reduction: gradients are added while they are in registers, the rule is
// applied there, and the new weights go to all targets: gradients and weights are read once, slots
// read and written once, each target written once, in one pass over memory. The sum is the balanced
// tree of engine/ops/reduce.h, the rule that of engine/ops/update_rule.h in the elements' type, of
// bfloat16 in float32; an element's bits depend neither on how many are updated in a call nor on
// the instruction set. Compiled for each instruction set and chosen as the program runs. No state;
// any thread.
#pragma once
#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

// float32, float64 and bfloat16 with its masters; `arguments` are checked (check_reduce), and their
// epilogue is kUpdate. With `stream` targets that are aligned alike are written past the caches,
// but for the old weights' own memory, whose lines are there.
void update(const ReduceArguments& arguments);

}  // namespace lockstep::engine::cpu
