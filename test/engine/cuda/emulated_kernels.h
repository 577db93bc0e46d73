// SPDX-License-Identifier: MIT
// All kernels of a module, for a fake GPU that runs them in the emulator. Created once.
// Thread-safe.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

struct EmulatedKernel {
  std::string name;
  std::size_t bytes = 0;                         // of the arguments
  void (*run)(const void* arguments) = nullptr;  // runs one thread, within `emulate`
};

// Returns the kernels of float32, bfloat16, or float16. Valid forever.
std::span<const EmulatedKernel> emulated_kernels(DType dtype);

}  // namespace lockstep::engine::cuda
