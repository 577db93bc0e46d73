// SPDX-License-Identifier: MIT
// The compiled kernels of one element type, loaded into one GPU. A kernel takes one struct
// (engine/cuda/kernels) by value, which names it. Launching is thread-safe, takes a few
// microseconds and never waits.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "engine/cuda/context.h"
#include "engine/cuda/stream.h"

namespace lockstep::engine::cuda {

// Describes the launch dimensions of a kernel.
struct Grid {
  unsigned blocks = 1;
  unsigned rows = 1;  // second dimension of the grid
  unsigned threads = 256;
  unsigned shared = 0;  // bytes of dynamic shared memory per block (`window`)
};

class KernelModule {
 public:
  // Loads `image`, a fatbin. Throws Error(kDevice) if the GPU cannot run it.
  KernelModule(const Context& context, std::span<const std::byte> image);
  ~KernelModule();
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;

  // Queues the kernel Arguments::kName with `arguments`. Does nothing if the grid has no blocks.
  template <class Arguments>
  void launch(CudaStream& stream, Grid grid, const Arguments& arguments) const {
    start(stream, grid, Arguments::kName, &arguments);
  }

 private:
  void start(CudaStream& stream, Grid grid, const char* name, const void* arguments) const;

  const Context* context_;
  bool early_;  // whether programmatic dependent launch is used
  CUmodule module_ = nullptr;
  struct Kernel {
    CUfunction function;
    unsigned shared;  // largest dynamic shared memory so far, bytes
  };
  // All kernels of the module. The comparison finds names without making strings.
  mutable std::map<std::string, Kernel, std::less<>> kernels_;
  mutable std::mutex mutex_;  // protects `shared`
};

}  // namespace lockstep::engine::cuda
