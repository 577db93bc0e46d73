// SPDX-License-Identifier: MIT
// The element type of the kernels compiled with this folder in the include path.
#pragma once
#include "engine/base/half.h"

namespace lockstep::engine::cuda {

using Element = Half;

}  // namespace lockstep::engine::cuda
