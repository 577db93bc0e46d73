// SPDX-License-Identifier: MIT
// A recording of streams that goes on, and what it ends with: a graph of the driver's. Streams that
// are recorded together share one Capture; their owners queue from several threads, and the
// driver's graph is not made for that, so they take turns. What fails is noted, and from then on
// nothing is queued: nothing would have been done, so the host's part of a step comes to its end as
// it would have, and whoever ends the recording learns why there is none. Errors are those of the
// calls that are noted; `GraphRun` throws Error(kDevice).
#pragma once
#include <mutex>
#include <string>

#include "engine/base/error.h"
#include "engine/cuda/context.h"

namespace lockstep::engine::cuda {

class Capture {
 public:
  // Any thread.
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
  // What cannot be recorded was asked for; the first reason stays.
  void refuse(const std::string& why);
  std::string failure() const;  // empty: none so far

 private:
  mutable std::mutex mutex_;
  std::string failure_;
};

// A recorded graph that can be launched. One thread at a time. It must not run when it goes.
class GraphRun {
 public:
  // Takes the graph over.
  GraphRun(const Context& context, CUgraph graph);
  ~GraphRun();
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;
  void launch(CUstream stream) const;  // behind its work; some microseconds

 private:
  const Context* context_;
  CUgraphExec run_ = nullptr;
};

}  // namespace lockstep::engine::cuda
