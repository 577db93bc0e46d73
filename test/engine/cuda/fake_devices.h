// SPDX-License-Identifier: MIT
// The device "cuda:0" on a fake GPU, with loops for NVIDIA's libraries: everything above them is as
// on a real one. One at a time in a process. Any thread.
#pragma once
#include <memory>

#include "engine/device/device.h"
#include "test/engine/cuda/fake_options.h"

namespace lockstep::engine::cuda {

// Its kernels have those of the libraries too, whatever `options` says.
std::unique_ptr<Device> fake_device(FakeGpuOptions options = {});

}  // namespace lockstep::engine::cuda
