// SPDX-License-Identifier: MIT
// Helpers of the benchmarks of single kernels: the CPU clock of the calling thread, and tensors of
// small random numbers. The clock stops while another program has the core.
#pragma once
#include <time.h>

#include "engine/base/random.h"
#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

struct Batch {
  Buffer memory;
  Tensor tensor;
};

// Returns a float32 batch; equal shapes have equal numbers.
inline Batch random_batch(Device& device, const Shape& shape) {
  Batch made{device.allocate(shape.elements() * sizeof(float)), {}};
  made.tensor = {made.memory.data(), shape, DType::kFloat32};
  Random random(shape.elements());
  for (std::size_t i = 0; i < shape.elements(); ++i) {
    made.tensor.as<float>()[i] = float(random.uniform(-0.1, 0.1));
  }
  return made;
}

}  // namespace lockstep::engine
