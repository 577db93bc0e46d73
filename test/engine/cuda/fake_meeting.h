// SPDX-License-Identifier: MIT
// A piece of work that several streams of fake GPUs share, like a collective of a library. It runs
// when the last stream has reached it, and no stream continues before. Thread-safe.
#pragma once
#include <functional>
#include <memory>

#include "engine/cuda/driver.h"
#include "test/engine/cuda/fake_queue.h"

namespace lockstep::engine::cuda {

class FakeMeeting {
 public:
  FakeMeeting(int streams, std::function<void()> run);
  void join(CUstream stream);  // after the work queued so far
  void give_up();              // cancels the work; streams continue

 private:
  // The pieces of work share this state, since the FakeMeeting may be destroyed first.
  struct State {
    int left;
    std::function<void()> run;
    std::shared_ptr<FakeEvent> over;
  };
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::engine::cuda
