// SPDX-License-Identifier: MIT
// NVIDIA's driver, with GPUs of its own, for tests on machines without one. It is stricter than a
// real one: work runs as late as it may and in an order drawn by chance (fake_queue.h), fresh
// memory is poisoned (fake_memory.h), and calls that a real driver sometimes allows while a stream
// is recorded are refused. GPU memory is host memory, so tests may look at it, after waiting; a
// kernel that uses memory of a GPU that its own does not reach fails, as on a GPU (fake_fence.h).
// Kernels are run by the emulator. Streams that are not CU_STREAM_NON_BLOCKING are refused.
//
// The driver's functions are plain functions, so they find the fake by a pointer of the process:
// one fake at a time. Any thread.
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
  Driver new_driver() const;  // not yet started: `start` is for the test to call

  // A module that has all emulated kernels of an element type.
  static std::span<const std::byte> image(DType dtype);

  void stick();          // from now on nothing that is queued runs
  void end_processes();  // what processes have open of each other's memory is closed

  std::vector<std::string> kernels_run() const;  // in their order
  std::size_t early_launches() const;            // launches that let a kernel start early
  std::size_t free_memory(int gpu = 0) const;
  // What was made and is still there: "1 stream, 2 blocks"; empty where nothing is.
  std::string left() const;

 private:
  std::unique_ptr<FakeState> state_;
};

}  // namespace lockstep::engine::cuda
