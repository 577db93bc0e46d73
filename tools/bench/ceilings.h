// SPDX-License-Identifier: MIT
// What a device reaches at most, by which everything else on it is judged: a copy within its
// memory, and a large product of matrices. Both are measured, through the same kernels that
// replicas have, never taken from a data sheet. A sample is the time of some calls between two
// waits for the device; whoever wants a median takes several, in turn with what is judged by them.
//
// One thread, which has the ops to itself. Throw Error(kMemory), Error(kIo) where memory is short.
#pragma once
#include <chrono>
#include <cstddef>

#include "engine/base/error.h"
#include "engine/device/buffer.h"
#include "engine/ops/ops.h"

namespace lockstep::tools::bench {

// Seconds of one of so many calls of `body`, which queue work of `ops`: from a wait to a wait.
template <class Body>
double seconds_of_each(engine::Ops& ops, int calls, const Body& body) {
  ops.synchronize();
  const auto begin = engine::Clock::now();
  for (int i = 0; i < calls; ++i) body();
  ops.synchronize();
  return std::chrono::duration<double>(engine::Clock::now() - begin).count() / calls;
}

// From one buffer to another and back, so that each call reads what the one before wrote.
class CopyCeiling {
 public:
  CopyCeiling(engine::Ops& ops, std::size_t bytes);
  double seconds(int calls);                           // of one copy
  double moved() const { return 2 * double(bytes_); }  // bytes that it reads and writes
  bool holds() const;  // whether both buffers have what was written into the first

 private:
  engine::Ops& ops_;
  std::size_t bytes_;
  engine::Buffer from_, to_;
};

// y = x w' of square matrices of `extent`, in the type of the ops, of random numbers: of zeros some
// devices take less power, and are faster.
class ProductCeiling {
 public:
  ProductCeiling(engine::Ops& ops, std::size_t extent);
  double seconds(int calls);  // of one product
  double operations() const { return 2 * double(extent_) * double(extent_) * double(extent_); }
  bool finite() const;  // whether the product's corners are numbers, and not all zero

 private:
  engine::Ops& ops_;
  std::size_t extent_;
  engine::Buffer x_, w_, y_;
  engine::StepState state_;
};

}  // namespace lockstep::tools::bench
