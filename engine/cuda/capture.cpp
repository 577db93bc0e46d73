// SPDX-License-Identifier: MIT
#include "engine/cuda/capture.h"

namespace lockstep::engine::cuda {

void Capture::refuse(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
}

std::string Capture::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

GraphRun::GraphRun(const Context& context, CUgraph graph) : context_(&context) {
  context.use();
  const CUresult made = context.driver().graph_instantiate(&run_, graph, 0);
  context.driver().graph_destroy(graph);
  context.check(made, "cuGraphInstantiate");
}

GraphRun::~GraphRun() {
  if (context_->stuck()) return;
  try {
    context_->use();
    context_->driver().graph_exec_destroy(run_);
  } catch (const Error&) {
    // The context is gone, and the graph with it.
  }
}

void GraphRun::launch(CUstream stream) const {
  context_->use();
  context_->check(context_->driver().graph_launch(run_, stream), "cuGraphLaunch");
}

}  // namespace lockstep::engine::cuda
