// SPDX-License-Identifier: MIT
// The functions of a fake GPU's driver. They are plain functions, as the real ones are, so the
// state that they work on is one for the process: the only global variable of these tests, but for
// that of fake_fence.h. Any thread.
#pragma once
#include <functional>

#include "engine/cuda/driver.h"
#include "test/engine/cuda/fake_state.h"

namespace lockstep::engine::cuda {

// From now on the functions work on `state`; on none with null. At most one at a time.
void install(FakeState* state);

Driver fake_driver();

// The parts of the table.
void fill_streams(Driver& driver);
void fill_graphs(Driver& driver);
void fill_memory(Driver& driver);
void fill_sharing(Driver& driver);

// Runs `call` with the state and its mutex held. Where the driver is not started, or work failed
// before, or fails now, that is the answer.
CUresult guarded(const std::function<CUresult(FakeState&)>& call);
// The same for calls of the calling thread's context.
CUresult in_context(const std::function<CUresult(FakeState&, FakeContext&)>& call);
// And for those that are not allowed while a stream is recorded, which breaks the recording.
CUresult uncaptured(const std::function<CUresult(FakeState&, FakeContext&)>& call);
// Runs `call` with the stream, where it is one.
CUresult with_stream(CUstream handle, const std::function<CUresult(FakeState&, FakeStream*)>& call);

CUresult result_of(FakeAnswer answer);

// Whether kernels of one GPU may be let to memory of another.
bool reaches(const FakeState& state, int from, int to);

// What a handle names, where the installed fake has such an event. With the mutex held.
std::shared_ptr<FakeEvent> event_of(const FakeState& state, CUevent handle);

}  // namespace lockstep::engine::cuda
