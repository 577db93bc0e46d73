// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_meeting.h"

#include <utility>

#include "engine/base/error.h"
#include "test/engine/cuda/fake_driver.h"

namespace lockstep::engine::cuda {

FakeMeeting::FakeMeeting(int streams, std::function<void()> run)
    : state_(
          std::make_shared<State>(State{streams, std::move(run), std::make_shared<FakeEvent>()})) {
  state_->over->recorded = 1;
}

void FakeMeeting::join(CUstream stream) {
  const CUresult result = with_stream(stream, [&](FakeState& fake, FakeStream* at) {
    fake.queue.push(at, "meeting", [state = state_] {
      if (--state->left > 0 || state->over->done > 0) return;
      state->run();
      state->over->done = 1;
    });
    return result_of(fake.queue.wait(at, state_->over));
  });
  invariant(result == CUDA_SUCCESS, "a meeting of a stream that is none");
}

void FakeMeeting::give_up() {
  guarded([&](FakeState&) {
    state_->over->done = 1;
    return CUDA_SUCCESS;
  });
}

}  // namespace lockstep::engine::cuda
