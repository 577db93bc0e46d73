// SPDX-License-Identifier: MIT
// NVIDIA's management library for fake GPUs, which are linked as a test says. Its functions are
// plain ones, as the real ones are, so there is one at a time in a process. One thread at a time.
#pragma once
#include <vector>

#include "engine/cuda/nvml.h"

namespace lockstep::engine::cuda {

class FakeNvml {
 public:
  static constexpr NvmlResult kError = 999;

  struct Link {
    NvmlLinkEnd end = NvmlLinkEnd::kSwitch;
    int to = -1;           // the GPU, where it ends at one
    unsigned version = 6;  // as the library counts: 4.0
    bool active = true;
  };
  struct Gpu {
    int node = 0, bridge = 0, pcie_switch = 0;  // of the whole host
    std::vector<Link> links = {};
    bool known = true;
  };

  explicit FakeNvml(std::vector<Gpu> gpus, NvmlResult start = 0);
  ~FakeNvml();
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;

  Nvml table() const;
  int starts() const { return starts_; }  // that no shutdown followed

 private:
  static const Gpu& gpu_of(NvmlDevice handle);
  static const Link* link_of(NvmlDevice handle, unsigned link);  // null where it has no such link

  std::vector<Gpu> gpus_;
  NvmlResult start_;
  int starts_ = 0;
};

}  // namespace lockstep::engine::cuda
