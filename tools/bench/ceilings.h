// SPDX-License-Identifier: MIT
// Upper bounds for a device: a copy within its memory and a large matrix product. Both are measured
// with the kernels that replicas use, not taken from a data sheet. A sample is the time of several
// calls between two waits for the device. For a median, take several samples, interleaved with the
// work that they are compared with.
//
// One thread, which has exclusive use of the ops. Throws Error(kMemory) or Error(kIo) if memory is
// insufficient.
#pragma once
#include <chrono>
#include <cstddef>

#include "engine/base/error.h"
#include "engine/device/buffer.h"
#include "engine/ops/ops.h"

namespace lockstep::tools::bench {

// Returns the seconds of one of `calls` calls of `body`, which queues work of `ops`. The clock runs
// between two waits for the device.
template <class Body>
double seconds_of_each(engine::Ops& ops, int calls, const Body& body) {
  ops.synchronize();
  const auto begin = engine::Clock::now();
  for (int i = 0; i < calls; ++i) body();
  ops.synchronize();
  return std::chrono::duration<double>(engine::Clock::now() - begin).count() / calls;
}

// Copies between two buffers in alternating direction, so that each call reads the result of the
// previous one.
class CopyCeiling {
 public:
  CopyCeiling(engine::Ops& ops, std::size_t bytes);
  double seconds(int calls);                           // per copy
  double moved() const { return 2 * double(bytes_); }  // bytes read and written
  // Returns whether both buffers hold the data that was written to the first.
  bool holds() const;

 private:
  engine::Ops& ops_;
  std::size_t bytes_;
  engine::Buffer from_, to_;
};

// Computes y = x w' with square matrices of `extent` in the dtype of the ops. The elements are
// random, because with zeros some devices draw less power and run faster.
class ProductCeiling {
 public:
  ProductCeiling(engine::Ops& ops, std::size_t extent);
  double seconds(int calls);  // per product
  double operations() const { return 2 * double(extent_) * double(extent_) * double(extent_); }
  // Returns whether the corners of the product are finite and not all zero.
  bool finite() const;

 private:
  engine::Ops& ops_;
  std::size_t extent_;
  engine::Buffer x_, w_, y_;
  engine::StepState state_;
};

}  // namespace lockstep::tools::bench
