// SPDX-License-Identifier: MIT
#include "engine/cuda/stream.h"

#include <deque>
#include <thread>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

// Polls `done` until it returns true. Most waits are short, so the first 50 us have no sleep; a
// poll takes about a microsecond. Sleeping afterwards leaves the core to the threads that feed the
// GPU, and adds little to a long wait. A stuck GPU is polled once.
template <class Done>
void poll(const Context& context, std::chrono::milliseconds deadline, const char* what, Done done) {
  constexpr std::chrono::microseconds kSpin{50};
  constexpr std::chrono::microseconds kSleep{20};
  const Clock::time_point start = Clock::now();
  while (!done()) {
    if (context.stuck()) {
      fail(Code::kTimeout, "cuda:{}: {} is not waited for: the GPU was stuck before",
           context.index(), what);
    }
    const Clock::duration waited = Clock::now() - start;
    const bool watched = waited >= kSpin && context.on_waiting(waited);
    if (waited >= deadline && !watched) {
      context.give_up();
      fail(Code::kTimeout, "cuda:{}: {} did not come to an end within {} ms", context.index(), what,
           deadline.count());
    }
    if (waited >= kSpin) std::this_thread::sleep_for(kSleep);
  }
}

// Interprets the result of a query of queued work. An error is one of the work, which any earlier
// call may have queued.
bool is_done(const Context& context, CUresult answer, const char* call) {
  if (answer == CUDA_ERROR_NOT_READY) return false;
  context.check(answer, call);
  return true;
}

}  // namespace

Event::Event(const Context& context, bool timed) : context_(&context) {
  context.use();
  const unsigned flags = timed ? unsigned(CU_EVENT_DEFAULT) : unsigned(CU_EVENT_DISABLE_TIMING);
  context.check(context.driver().event_create(&event_, flags), "cuEventCreate");
}

Event::~Event() {
  context_->driver().event_destroy(event_);
}

bool Event::done() const {
  context_->use();
  return is_done(*context_, context_->driver().event_query(event_),
                 "cuEventQuery, or work queued before,");
}

void Event::synchronize(std::chrono::milliseconds deadline) const {
  poll(*context_, deadline, "the work before an event", [&] { return done(); });
}

// Polls because the driver's call that waits for a GPU has no deadline. Idle streams get no event,
// since an event on a stuck GPU would never be done.
void wait_for_all(const Context& context, std::chrono::milliseconds deadline) {
  context.use();
  std::deque<Event> events;
  context.each_stream([&](CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    context.check(context.driver().stream_is_capturing(stream, &status), "cuStreamIsCapturing");
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) return;  // captured work is not queued
    const CUresult idle = context.driver().stream_query(stream);
    if (is_done(context, idle, "cuStreamQuery, or work queued before,")) return;
    const Event& event = events.emplace_back(context);
    context.check(context.driver().event_record(event.handle(), stream), "cuEventRecord");
  });
  poll(context, deadline, "all work of the GPU", [&] {
    while (!events.empty() && events.front().done()) events.pop_front();
    return events.empty();
  });
}

double milliseconds_between(const Context& context, const Event& from, const Event& to) {
  context.use();
  float milliseconds = 0;
  context.check(context.driver().event_elapsed_time(&milliseconds, from.handle(), to.handle()),
                "cuEventElapsedTime");
  return double(milliseconds);
}

// A non-blocking stream does not synchronize with the default stream that libraries use.
CudaStream::CudaStream(const Context& context, bool urgent) : context_(&context) {
  context.use();
  // A smaller number is more urgent; 0 is the least urgent.
  context.check(context.driver().stream_create(&stream_, CU_STREAM_NON_BLOCKING, urgent ? -1 : 0),
                "cuStreamCreateWithPriority");
  context.add(stream_);
}

CudaStream::~CudaStream() {
  context_->remove(stream_);
  context_->driver().stream_destroy(stream_);
}

void CudaStream::synchronize() {
  synchronize(kDeadline);
}

void CudaStream::synchronize(std::chrono::milliseconds deadline) {
  if (capture_ != nullptr) return capture_->refuse("a stream is waited for while it is recorded");
  context_->use();
  poll(*context_, deadline, "the work of a stream", [&] {
    return is_done(*context_, context_->driver().stream_query(stream_),
                   "cuStreamQuery, or work queued before,");
  });
}

void CudaStream::record(const Event& event) {
  queue([&] {
    context_->use();
    context_->check(context_->driver().event_record(event.handle(), stream_), "cuEventRecord");
  });
}

void CudaStream::wait(const Event& event) {
  queue([&] {
    context_->use();
    context_->check(
        context_->driver().stream_wait_event(stream_, event.handle(), CU_EVENT_WAIT_DEFAULT),
        "cuStreamWaitEvent");
  });
}

void CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  queue([&] {
    context_->use();
    context_->check(
        context_->driver().memcpy_async(address_of(to), address_of(from), bytes, stream_),
        "cuMemcpyAsync");
  });
}

void CudaStream::fill(void* to, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return;
  queue([&] {
    context_->use();
    context_->check(context_->driver().memset_d8_async(address_of(to), value, bytes, stream_),
                    "cuMemsetD8Async");
  });
}

}  // namespace lockstep::engine::cuda
