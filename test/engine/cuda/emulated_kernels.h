// SPDX-License-Identifier: MIT
// All kernels of a module, for a fake GPU that runs them in the emulator. Made once; any thread.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "engine/tensor/tensor.h"

namespace lockstep::engine::cuda {

struct EmulatedKernel {
  std::string name;
  std::size_t bytes = 0;                         // of the arguments
  void (*run)(const void* arguments) = nullptr;  // as one thread, within `emulate`
};

// Of float32, bfloat16 or float16. They live for ever.
std::span<const EmulatedKernel> emulated_kernels(DType dtype);

}  // namespace lockstep::engine::cuda
