// SPDX-License-Identifier: MIT
// The element type of the kernels compiled with this folder in the include path.
#pragma once
#include "engine/base/bfloat16.h"

namespace lockstep::engine::cuda {

using Element = BFloat16;

}  // namespace lockstep::engine::cuda
