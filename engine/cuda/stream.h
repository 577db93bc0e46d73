// SPDX-License-Identifier: MIT
// A queue of work on one GPU, and events in it. Kernels are queued and run later, one after the
// other; what a stream does is seen by the host after `synchronize`, by another stream after it
// waited for an event. Made and used by one thread at a time. Queueing costs a few microseconds and
// never waits for the GPU. Errors: Error(kDevice) with the driver's call and its words, also of
// work queued earlier; Error(kTimeout) where the GPU did not come to an end within the deadline.
//
// While a stream is recorded what is queued goes into the recording (capture.h), and what the host
// would wait for is refused there.
#pragma once
#include <chrono>
#include <memory>

#include "engine/cuda/capture.h"
#include "engine/cuda/context.h"
#include "engine/device/device.h"

namespace lockstep::engine::cuda {

// An event in a stream: done when all work queued before it is.
class Event {
 public:
  explicit Event(const Context& context, bool timed = false);
  Event(const Context& context, CUevent made)
      : context_(&context), event_(made) {}  // takes it over
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  bool done() const;
  void synchronize(std::chrono::milliseconds deadline) const;
  CUevent handle() const { return event_; }

 private:
  const Context* context_;
  CUevent event_ = nullptr;
};

// Waits for all work that was queued so far on the GPU, in whichever stream. Returns at once where
// nothing is queued, even if the GPU is stuck.
void wait_for_all(const Context& context, std::chrono::milliseconds deadline);

// Of two timed events in finished work.
double milliseconds_between(const Context& context, const Event& from, const Event& to);

class CudaStream final : public Stream {
 public:
  // A stuck GPU is not waited for longer than this.
  static constexpr std::chrono::seconds kDeadline{300};

  // `urgent`: where the GPU has room for blocks of several streams, this one's go first.
  explicit CudaStream(const Context& context, bool urgent = false);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  // Waits until all that was queued is done, by asking again and again.
  void synchronize() override;
  void synchronize(std::chrono::milliseconds deadline);
  void record(const Event& event);
  void wait(const Event& event);  // later work of this stream; the host goes on

  // Queued; addresses of the GPU, or of pinned memory (of other host memory the call may wait).
  void copy(void* to, const void* from, std::size_t bytes);
  void fill(void* to, unsigned char value, std::size_t bytes);

  // Calls what queues work here through the driver or a library.
  template <class Call>
  void queue(Call&& call) {
    if (capture_ == nullptr) return call();
    capture_->queue(call);
  }
  // From now on this stream is one of a recording; null: no longer. The recording outlives that.
  void record_into(Capture* capture) { capture_ = capture; }
  Capture* recorded() const { return capture_; }  // null: it is not

  const Context& context() const { return *context_; }
  CUstream handle() const { return stream_; }

 private:
  const Context* context_;
  Capture* capture_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace lockstep::engine::cuda
