// SPDX-License-Identifier: MIT
// The functions of a fake GPU's driver. They are plain functions, like the real ones, so their
// state is a global variable. Only fake_fence.h has another one. Thread-safe.
#pragma once
#include <functional>

#include "engine/cuda/driver.h"
#include "test/engine/cuda/fake_state.h"

namespace lockstep::engine::cuda {

// Makes the functions use `state`; null: none. At most one state at a time.
void install(FakeState* state);

Driver fake_driver();

// Each function fills in a part of the table.
void fill_streams(Driver& driver);
void fill_graphs(Driver& driver);
void fill_memory(Driver& driver);
void fill_sharing(Driver& driver);

// Runs `call` with the state and its mutex held. Returns an error if the driver is not started,
// work failed before, or `call` fails.
CUresult guarded(const std::function<CUresult(FakeState&)>& call);
// Runs `call` likewise, with the calling thread's context.
CUresult in_context(const std::function<CUresult(FakeState&, FakeContext&)>& call);
// Runs `call` likewise, but fails and invalidates the capture if a stream is being captured.
CUresult uncaptured(const std::function<CUresult(FakeState&, FakeContext&)>& call);
// Runs `call` with the stream if the handle is valid.
CUresult with_stream(CUstream handle, const std::function<CUresult(FakeState&, FakeStream*)>& call);

CUresult result_of(FakeAnswer answer);

// Returns whether kernels of one GPU can be given access to another's memory.
bool reaches(const FakeState& state, int from, int to);

// Returns the event of a handle, or null if there is none. Requires the mutex.
std::shared_ptr<FakeEvent> event_of(const FakeState& state, CUevent handle);

}  // namespace lockstep::engine::cuda
