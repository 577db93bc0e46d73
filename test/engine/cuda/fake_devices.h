// SPDX-License-Identifier: MIT
// The devices "cuda:0", "cuda:1", ... on fake GPUs, with loops for NVIDIA's libraries. Everything
// above them runs as on real GPUs. One object at a time per process. Thread-safe.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/gpu.h"
#include "engine/device/device.h"
#include "test/engine/cuda/fake_gpu.h"
#include "test/engine/cuda/fake_options.h"

namespace lockstep::engine::cuda {

// Returns the loops for NVIDIA's libraries; the fake needs kernels_with_libraries.
GpuKernels fake_kernels();

// Owns fake GPUs whose kernels include those of the libraries, whatever `options` says.
class FakeDevices {
 public:
  explicit FakeDevices(FakeGpuOptions options);
  Device& operator[](std::size_t gpu) { return *gpus_[gpu]; }
  // Returns the same GPUs as seen by another process (fake_process.h), for any thread. Destroy them
  // before this object.
  std::vector<std::unique_ptr<Device>> of_process(int number) const;
  std::string left() const { return fake_.left(); }
  void stick() { fake_.stick(); }
  void end_processes() { fake_.end_processes(); }

 private:
  FakeGpu fake_;
  std::vector<std::unique_ptr<Device>> gpus_;
};

// Returns "cuda:0", which owns its driver.
std::unique_ptr<Device> fake_device(FakeGpuOptions options = {});

}  // namespace lockstep::engine::cuda
