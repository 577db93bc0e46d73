// SPDX-License-Identifier: MIT
// One GPU as the driver shows it: its primary context, which all libraries share, and what it can
// do. Lives as long as everything made with it. Any thread; each call that works on the GPU makes
// the context current on its thread first, which is cheap where it is already. Errors:
// Error(kDevice) with the driver's call and its words; of a GPU too old for our kernels, with what
// is needed.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "engine/cuda/driver.h"

namespace lockstep::engine::cuda {

struct GpuFacts {
  std::string name;        // "NVIDIA H200"
  std::string bus_id;      // "0000:3b:00.0"
  int capability = 0;      // 90 for compute capability 9.0
  std::size_t memory = 0;  // bytes
  int multiprocessors = 0;
  std::size_t cache = 0;  // bytes of level 2
};

// Of the GPU `index`, without making a context: a few milliseconds, and none of its memory. Throws
// Error(kDevice) of a GPU that is too old.
GpuFacts facts_of(const Driver& driver, int index);

class Context {
 public:
  static constexpr int kLeastCapability = 80;

  // The GPU `index` of those that the driver shows (it heeds CUDA_VISIBLE_DEVICES, and its order).
  Context(const Driver& driver, int index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void use() const;  // current on the calling thread from now on
  const Driver& driver() const { return *driver_; }
  int index() const { return index_; }
  CUcontext handle() const { return context_; }
  const GpuFacts& facts() const { return facts_; }
  std::size_t free_memory() const;  // bytes, of all processes
  // From now on kernels of this GPU read and write memory of `other`, what lies there now and what
  // will. False where the driver has no way from one to the other. Makes allocating slower.
  bool reach(const Context& other) const;

  // Work on this GPU did not come to an end within its deadline. Then nobody waits for it again,
  // and what lies there is left to the driver, which drops it when the process ends: freeing would
  // wait.
  void give_up() const { stuck_ = true; }
  bool stuck() const { return stuck_; }

  // Libraries that have worked on this GPU (cuDNN, cuBLASLt) may hold what is of the context, which
  // would go with its last holder: from now on the process is one, to its end.
  void keep() const { kept_ = true; }

  // Called again and again while somebody waits for this GPU, on that thread, with how long it has
  // (nanoseconds::max(): work has failed): what it throws ends the wait, whose deadline is its own
  // then. One at a time; an empty one removes it. Asked, says whether there is one.
  using Look = std::function<void(std::chrono::nanoseconds)>;
  void set_on_waiting(Look look) const;
  bool on_waiting(std::chrono::nanoseconds waited) const;

  // The streams there are (CudaStream says so), while none can go.
  void add(CUstream stream) const;
  void remove(CUstream stream) const;
  template <class Visit>
  void each_stream(Visit visit) const {
    const std::lock_guard lock(streams_mutex_);
    for (const CUstream stream : streams_) visit(stream);
  }

  // Throws Error(kDevice) where `result` is not success: "cuda:0: cuMemAlloc failed: out of memory
  // (CUDA_ERROR_OUT_OF_MEMORY)".
  void check(CUresult result, const char* call) const;

 private:
  const Driver* driver_;
  int index_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  GpuFacts facts_;
  mutable std::atomic<bool> stuck_ = false, kept_ = false;
  mutable std::mutex streams_mutex_;
  mutable std::set<CUstream> streams_;
  mutable std::mutex look_mutex_;
  mutable std::shared_ptr<const Look> look_;
};

}  // namespace lockstep::engine::cuda
