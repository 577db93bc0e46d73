// SPDX-License-Identifier: MIT
// The state of a fake GPU's driver. Only the functions of fake_driver use it, with the mutex
// locked.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "test/engine/cuda/fake_memory.h"
#include "test/engine/cuda/fake_options.h"
#include "test/engine/cuda/fake_queue.h"

namespace lockstep::engine::cuda {

struct FakeContext {
  int gpu = 0, process = 0;
  int holders = 0;
  std::set<int> peers;  // GPUs whose memory it may use
};

struct FakeModule {
  struct Function {
    const EmulatedKernel* kernel = nullptr;
    int gpu = 0;                      // that loaded its module
    unsigned most_shared = 48 << 10;  // largest launch request, in bytes
  };
  std::vector<Function> functions;
};

struct FakeState {
  explicit FakeState(const FakeGpuOptions& with)
      : options(with), memory(with.gpus, with.memory), queue(with.seed, with.on_starved) {
    for (int gpu = 0; gpu < with.gpus; ++gpu) defaults.push_back(queue.make_default_stream(gpu));
  }

  // Returns the primary context of a GPU in a process.
  FakeContext& context(int process, int gpu) {
    for (const auto& one : contexts)
      if (one->process == process && one->gpu == gpu) return *one;
    contexts.push_back(std::make_unique<FakeContext>());
    contexts.back()->gpu = gpu;
    contexts.back()->process = process;
    return *contexts.back();
  }

  std::mutex mutex;
  FakeGpuOptions options;
  bool started = false;
  CUresult error = CUDA_SUCCESS;  // of failed work; all later calls return it
  FakeMemory memory;
  FakeQueue queue;
  std::vector<std::unique_ptr<FakeContext>> contexts;
  std::vector<FakeStream*> defaults;
  std::map<std::thread::id, FakeContext*> current;
  std::vector<std::shared_ptr<FakeEvent>> events;
  std::vector<std::unique_ptr<FakeModule>> modules;
  std::vector<std::unique_ptr<FakeGraph>> graphs;
  std::vector<std::unique_ptr<std::shared_ptr<const FakeGraph>>> executables;
  std::vector<std::string> kernels_run;
  std::size_t launches = 0;
  std::size_t recorded = 0;  // of these, captured
  std::size_t early = 0;     // of these, allowed to start early
};

}  // namespace lockstep::engine::cuda
