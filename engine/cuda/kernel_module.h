// SPDX-License-Identifier: MIT
// The compiled kernels of one element type, loaded into one GPU. A kernel takes one struct
// (engine/cuda/kernels) by value, which names it. Any thread may launch; launching costs a few
// microseconds and waits for nothing.
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

// How many blocks, of how many threads, work on a call.
struct Grid {
  unsigned blocks = 1;
  unsigned rows = 1;  // the second extent of the blocks
  unsigned threads = 256;
  unsigned shared = 0;  // bytes that each block has beside its own arrays (`window`)
};

class KernelModule {
 public:
  // `image`: a fatbin. Throws Error(kDevice) where the GPU cannot run it.
  KernelModule(const Context& context, std::span<const std::byte> image);
  ~KernelModule();
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;

  // Queues the kernel that `arguments` belong to: Arguments::kName is its name. No blocks: nothing.
  template <class Arguments>
  void launch(CudaStream& stream, Grid grid, const Arguments& arguments) const {
    start(stream, grid, Arguments::kName, &arguments);
  }

 private:
  void start(CudaStream& stream, Grid grid, const char* name, const void* arguments) const;

  const Context* context_;
  bool early_;  // whether kernels may start before the one before has ended
  CUmodule module_ = nullptr;
  struct Kernel {
    CUfunction function;
    unsigned shared;  // bytes that a block may ask for so far
  };
  // All of them, found when this is made; by a name without making a string of it.
  mutable std::map<std::string, Kernel, std::less<>> kernels_;
  mutable std::mutex mutex_;  // of `shared`
};

}  // namespace lockstep::engine::cuda
