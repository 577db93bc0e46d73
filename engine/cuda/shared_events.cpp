// SPDX-License-Identifier: MIT
#include "engine/cuda/shared_events.h"

#include <utility>

namespace lockstep::engine::cuda {

std::unique_ptr<Event> SharedEvents::take() {
  const std::scoped_lock lock(mutex_);
  if (!kept_.empty()) {
    std::unique_ptr<Event> event = std::move(kept_.back());
    kept_.pop_back();
    return event;
  }
  context_->use();
  constexpr unsigned kFlags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  CUevent event = nullptr;
  context_->check(context_->driver().event_create(&event, kFlags), "cuEventCreate");
  return std::make_unique<Event>(*context_, event);
}

void SharedEvents::give_back(std::unique_ptr<Event> event) {
  const std::scoped_lock lock(mutex_);
  kept_.push_back(std::move(event));
}

}  // namespace lockstep::engine::cuda
