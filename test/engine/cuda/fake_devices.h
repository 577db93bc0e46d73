// SPDX-License-Identifier: MIT
// The devices "cuda:0", "cuda:1", ... on fake GPUs, with loops for NVIDIA's libraries: everything
// above them is as on real ones. One of these at a time in a process. Any thread.
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

// Loops for NVIDIA's libraries, for a fake that has kernels_with_libraries.
GpuKernels fake_kernels();

// Their kernels have those of the libraries too, whatever `options` says.
class FakeDevices {
 public:
  explicit FakeDevices(FakeGpuOptions options);
  Device& operator[](std::size_t gpu) { return *gpus_[gpu]; }
  // The same GPUs as another process has them (fake_process.h), whichever thread works with them.
  // They go before this does.
  std::vector<std::unique_ptr<Device>> of_process(int number) const;
  std::string left() const { return fake_.left(); }
  void stick() { fake_.stick(); }
  void end_processes() { fake_.end_processes(); }

 private:
  FakeGpu fake_;
  std::vector<std::unique_ptr<Device>> gpus_;
};

// "cuda:0", with the driver that shows it.
std::unique_ptr<Device> fake_device(FakeGpuOptions options = {});

}  // namespace lockstep::engine::cuda
