// SPDX-License-Identifier: MIT
// The arithmetic of collectives on the host, for all element types, at memory speed. No state;
// thread-safe.
#pragma once
#include "engine/ops/reduce.h"

namespace lockstep::engine::cpu {

void reduce(const ReduceArguments& arguments);

}  // namespace lockstep::engine::cpu
