// SPDX-License-Identifier: MIT
// The optimizer inside a reduction. Gradients are added and the rule is applied in registers, and
// the new weights go to all targets. One pass over memory reads gradients and weights once, reads
// and writes slots once, and writes each target once. The sum is the balanced tree of
// engine/ops/reduce.h. The rule is that of engine/ops/update_rule.h in the elements' type, for
// bfloat16 in float32. An element's bits depend neither on the size of the call nor on the
// instruction set. Compiled for each instruction set and chosen at run time. No state; thread-safe.
#pragma once
#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

// Updates weights of float32, of float64, or of bfloat16 with its masters. `arguments` are checked
// (check_reduce), and their epilogue is kUpdate. With `stream`, targets that are aligned alike use
// non-temporal stores, except for the old weights' own memory, whose lines are cached.
void update(const ReduceArguments& arguments);

}  // namespace lockstep::engine::cpu
