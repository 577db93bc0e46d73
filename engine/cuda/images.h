// SPDX-License-Identifier: MIT
// The compiled kernels inside the program, as one fatbin per element type. It has machine code for
// compute capability 8.0 and 9.0, and PTX, which drivers compile for newer GPUs. The kernels are
// read from the program's file when a module is loaded.
#pragma once
#include <cstddef>
#include <span>

#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

// Returns the image for float32, bfloat16 or float16. Other types break an invariant.
std::span<const std::byte> kernel_image(DType dtype);

}  // namespace lockstep::engine::cuda
