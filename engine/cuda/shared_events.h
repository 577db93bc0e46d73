// SPDX-License-Identifier: MIT
// Events of one GPU that other processes may open. Returned events are reused, and no event is
// destroyed before this object, since other processes may still have it open. They must not use it
// afterwards. Thread-safe. A call takes some microseconds. Throws Error(kDevice).
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
