// SPDX-License-Identifier: MIT
// A queue of work on one GPU, and its events. Kernels are queued and run later, one after the
// other. The host sees their results after `synchronize`, and another stream after it waited for an
// event. Use it from one thread at a time. Queueing takes a few microseconds and never waits for
// the GPU. Throws Error(kDevice) with the driver's call and message, also for work queued earlier,
// and Error(kTimeout) if the GPU misses the deadline.
//
// During a capture (capture.h), queued work goes into the captured graph, and waits of the host are
// refused.
#pragma once
#include <chrono>
#include <memory>

#include "engine/cuda/capture.h"
#include "engine/cuda/context.h"
#include "engine/device/device.h"

namespace lockstep::engine::cuda {

// Represents an event in a stream. It is done when all work queued before it is done.
class Event {
 public:
  explicit Event(const Context& context, bool timed = false);
  Event(const Context& context, CUevent made)
      : context_(&context), event_(made) {}  // takes ownership
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

// Waits for all work queued so far on the GPU, in all streams. Returns at once if nothing is
// queued, even if the GPU is stuck.
void wait_for_all(const Context& context, std::chrono::milliseconds deadline);

// Returns the time between two timed events in finished work.
double milliseconds_between(const Context& context, const Event& from, const Event& to);

class CudaStream final : public Stream {
 public:
  // The longest wait for a stuck GPU.
  static constexpr std::chrono::seconds kDeadline{300};

  // `urgent`: this stream's blocks get free room on the GPU before those of other streams.
  explicit CudaStream(const Context& context, bool urgent = false);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  // Waits by polling until all queued work is done.
  void synchronize() override;
  void synchronize(std::chrono::milliseconds deadline);
  void record(const Event& event);
  void wait(const Event& event);  // holds back later work, not the host

  // Queues a copy or fill. Addresses are on the GPU or in pinned memory; with other host memory the
  // call may wait.
  void copy(void* to, const void* from, std::size_t bytes);
  void fill(void* to, unsigned char value, std::size_t bytes);

  // Runs `call`, which queues work here through the driver or a library.
  template <class Call>
  void queue(Call&& call) {
    if (capture_ == nullptr) return call();
    capture_->queue(call);
  }
  // Adds this stream to a capture, which must outlive that; null ends it.
  void record_into(Capture* capture) { capture_ = capture; }
  Capture* recorded() const { return capture_; }  // null: no capture

  const Context& context() const { return *context_; }
  CUstream handle() const { return stream_; }

 private:
  const Context* context_;
  Capture* capture_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace lockstep::engine::cuda
