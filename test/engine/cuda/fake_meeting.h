// SPDX-License-Identifier: MIT
// A piece of work of several streams of fake GPUs, as a collective of a library is: it runs when
// the last of them has come to it, and none goes on before. Any thread.
#pragma once
#include <functional>
#include <memory>

#include "engine/cuda/driver.h"
#include "test/engine/cuda/fake_queue.h"

namespace lockstep::engine::cuda {

class FakeMeeting {
 public:
  FakeMeeting(int streams, std::function<void()> run);
  void join(CUstream stream);  // behind its work so far
  void give_up();              // it does not run any more, and the streams go on

 private:
  // Pieces of work keep it: whoever made the meeting may be gone.
  struct State {
    int left;
    std::function<void()> run;
    std::shared_ptr<FakeEvent> over;
  };
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::engine::cuda
