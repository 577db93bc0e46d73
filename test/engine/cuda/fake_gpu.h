// SPDX-License-Identifier: MIT
// NVIDIA's driver with fake GPUs, for tests on machines without a GPU. It is stricter than a real
// one: work runs as late as possible and in random order (fake_queue.h), and new memory is poisoned
// (fake_memory.h). It refuses all calls that a driver only sometimes allows during capture. GPU
// memory is host memory, so tests may read it after waiting. A kernel that uses memory out of its
// GPU's reach fails, as on a GPU (fake_fence.h). The emulator runs the kernels. Only streams with
// CU_STREAM_NON_BLOCKING are accepted.
//
// The driver's functions are plain functions, so they find the fake by a global pointer: one fake
// at a time. Thread-safe.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/driver.h"
#include "engine/tensor/tensor.h"
#include "test/engine/cuda/fake_options.h"

namespace lockstep::engine::cuda {

struct FakeState;

class FakeGpu {
 public:
  explicit FakeGpu(const FakeGpuOptions& options = {});
  ~FakeGpu();
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  Driver driver() const;      // started
  Driver new_driver() const;  // not started: the test calls `start`

  // Returns a module with all emulated kernels of an element type.
  static std::span<const std::byte> image(DType dtype);

  void stick();          // queued work no longer runs
  void end_processes();  // closes memory that processes opened of each other

  std::vector<std::string> kernels_run() const;  // in order
  std::size_t early_launches() const;            // kernels that may start early
  std::size_t free_memory(int gpu = 0) const;
  // Returns the objects that still exist, such as "1 stream, 2 blocks"; empty if there are none.
  std::string left() const;

 private:
  std::unique_ptr<FakeState> state_;
};

}  // namespace lockstep::engine::cuda
