// SPDX-License-Identifier: MIT
// NVIDIA's management library for fake GPUs, whose links a test chooses. Its functions are plain
// functions, like the real ones, so a process has one fake at a time. Not thread-safe.
#pragma once
#include <vector>

#include "engine/cuda/nvml.h"

namespace lockstep::engine::cuda {

class FakeNvml {
 public:
  static constexpr NvmlResult kError = 999;

  struct Link {
    NvmlLinkEnd end = NvmlLinkEnd::kSwitch;
    int to = -1;           // the GPU at its end, if any
    unsigned version = 6;  // the library's number of NVLink 4.0
    bool active = true;
  };
  struct Gpu {
    int node = 0, bridge = 0, pcie_switch = 0;  // in the whole host
    std::vector<Link> links = {};
    bool known = true;
  };

  explicit FakeNvml(std::vector<Gpu> gpus, NvmlResult start = 0);
  ~FakeNvml();
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;

  Nvml table() const;
  int starts() const { return starts_; }  // without a shutdown

 private:
  static const Gpu& gpu_of(NvmlDevice handle);
  static const Link* link_of(NvmlDevice handle, unsigned link);  // null: no such link

  std::vector<Gpu> gpus_;
  NvmlResult start_;
  int starts_ = 0;
};

}  // namespace lockstep::engine::cuda
