// SPDX-License-Identifier: MIT
// The kernels that nvcc compiled, inside the program: a fatbin for each element type, with machine
// code for compute capability 8.0 and 9.0, and what drivers compile for GPUs to come. They are read
// from the program's file when a module is loaded.
#pragma once
#include <cstddef>
#include <span>

#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

// Of float32, bfloat16 or float16; of another type a broken invariant.
std::span<const std::byte> kernel_image(DType dtype);

}  // namespace lockstep::engine::cuda
