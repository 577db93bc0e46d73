// SPDX-License-Identifier: MIT
// CUDA graph capture of streams. Streams that are captured together share one Capture. Their owners
// queue from several threads, and the driver's graph is not thread-safe, so Capture serializes the
// calls. It notes the first error and queues nothing after it. The host's part of the step
// therefore ends as usual, and the call that ends the capture returns the error. Noted errors are
// those of the queued calls; `GraphRun` throws Error(kDevice).
#pragma once
#include <mutex>
#include <string>

#include "engine/base/error.h"
#include "engine/cuda/context.h"

namespace lockstep::engine::cuda {

class Capture {
 public:
  // Runs `call` unless an earlier one failed. Thread-safe.
  template <class Call>
  void queue(Call&& call) {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    try {
      call();
    } catch (const Error& error) {
      failure_ = error.what();
    }
  }
  // Fails the capture because an operation cannot be captured. The first reason stays.
  void refuse(const std::string& why);
  std::string failure() const;  // empty: no failure so far

 private:
  mutable std::mutex mutex_;
  std::string failure_;
};

// Owns an executable graph. Use it from one thread at a time, and destroy it only after its
// launches are done.
class GraphRun {
 public:
  // Takes ownership of the graph.
  GraphRun(const Context& context, CUgraph graph);
  ~GraphRun();
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;
  void launch(CUstream stream) const;  // queued on the stream; takes some microseconds

 private:
  const Context* context_;
  CUgraphExec run_ = nullptr;
};

}  // namespace lockstep::engine::cuda
