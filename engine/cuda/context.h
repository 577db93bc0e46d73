// SPDX-License-Identifier: MIT
// A Context holds the primary context of a GPU, which all libraries share, and its properties. It
// must outlive everything that was made with it. Thread-safe: each call that works on the GPU first
// makes the context current on its thread, which is cheap if it already is. Throws Error(kDevice)
// with the driver's call and its message; for a GPU that is too old, the message names the required
// capability.
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
  std::size_t cache = 0;  // bytes of L2 cache
};

// Returns the properties of GPU `index` in a few milliseconds, without making a context and without
// GPU memory. Throws Error(kDevice) if the GPU is too old.
GpuFacts facts_of(const Driver& driver, int index);

class Context {
 public:
  static constexpr int kLeastCapability = 80;

  // Opens GPU `index` of those that the driver shows, which follows CUDA_VISIBLE_DEVICES and its
  // order.
  Context(const Driver& driver, int index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void use() const;  // makes it current on the calling thread
  const Driver& driver() const { return *driver_; }
  int index() const { return index_; }
  CUcontext handle() const { return context_; }
  const GpuFacts& facts() const { return facts_; }
  std::size_t free_memory() const;  // bytes, over all processes
  // Lets kernels of this GPU read and write all memory of `other`, present and future. Returns
  // false if the driver cannot access one from the other. Allocations become slower.
  bool reach(const Context& other) const;

  // Marks the GPU as stuck after work missed its deadline. Nothing waits for it again, and its
  // memory stays allocated until the process ends, since freeing would wait.
  void give_up() const { stuck_ = true; }
  bool stuck() const { return stuck_; }

  // Keeps the context until the process ends. Libraries that used this GPU (cuDNN, cuBLASLt) may
  // hold resources of the context, which its last owner would destroy.
  void keep() const { kept_ = true; }

  // Sets the callback that runs repeatedly while a thread waits for this GPU, on that thread. It
  // receives the time waited so far; nanoseconds::max() means that work has failed. An exception
  // from it ends the wait, and the wait then has no deadline of its own. There is one callback at a
  // time; an empty one removes it. `on_waiting` calls it and returns whether there is one.
  using Look = std::function<void(std::chrono::nanoseconds)>;
  void set_on_waiting(Look look) const;
  bool on_waiting(std::chrono::nanoseconds waited) const;

  // These functions keep the set of this GPU's streams for CudaStream. None can be removed during a
  // visit.
  void add(CUstream stream) const;
  void remove(CUstream stream) const;
  template <class Visit>
  void each_stream(Visit visit) const {
    const std::lock_guard lock(streams_mutex_);
    for (const CUstream stream : streams_) visit(stream);
  }

  // Throws Error(kDevice) unless `result` is success: "cuda:0: cuMemAlloc failed: out of memory
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
