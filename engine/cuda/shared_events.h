// SPDX-License-Identifier: MIT
// Events of one GPU that other processes may open. What is given back is given again, and nothing
// is destroyed before this is: a process that still has an event open may not touch it from then
// on. Any thread. A call costs some microseconds. Errors: Error(kDevice).
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cuda/context.h"
#include "engine/cuda/stream.h"

namespace lockstep::engine::cuda {

class SharedEvents {
 public:
  explicit SharedEvents(const Context& context) : context_(&context) {}
  std::unique_ptr<Event> take();
  void give_back(std::unique_ptr<Event> event);

 private:
  const Context* context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Event>> kept_;
};

}  // namespace lockstep::engine::cuda
