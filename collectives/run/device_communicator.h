// SPDX-License-Identifier: MIT
// Collectives among devices by a vendor's library, with one rank per device: NCCL (nccl/). Calls
// queue work on a stream and return when it is queued; the data is ready when the stream has
// completed it. All work in place and are collective: all ranks make the same calls in the same
// order with the same counts and types.
//
// Memory belongs to the GPU that was current when the communicator was created, and must live until
// the stream has completed. `stream` is a CUstream of that GPU. One thread at a time. A call costs
// some microseconds; the first ones of a kind cost up to seconds, since they make connections.
//
// Every wait has a deadline. A failure, here or elsewhere, aborts the communicator: queued work
// ends at once, unfinished, and every later call throws the same error. Errors name rank and call.
// kPeerLost: a rank or the path to it is lost. kDevice: other errors of NCCL, with its text.
// kTimeout. kInvalid: invalid arguments.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "engine/base/error.h"
#include "engine/device/buffer.h"
#include "engine/tensor/tensor.h"

namespace lockstep::collectives {

struct DeviceCommunicatorOptions {
  bool hierarchical = false;                    // all-reduce by hosts (nccl/hierarchical.h)
  std::chrono::milliseconds deadline{60000};    // of each wait
  std::chrono::milliseconds closing{2000};      // of an orderly end; then it aborts
  std::function<void()> throw_if_lost = [] {};  // polled in waits; throws if ranks are lost
};

class DeviceCommunicator {
 public:
  // Queued work must be complete. Takes about DeviceCommunicatorOptions::closing at most. Never
  // throws.
  virtual ~DeviceCommunicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Sums `count` elements over all ranks, with the same bits on all ranks. 16-bit numbers may be
  // rounded at each addition.
  virtual void all_reduce(std::byte* data, std::size_t count, engine::DType dtype,
                          void* stream) = 0;
  // Both take one part of `part` elements per rank, consecutively. `reduce_scatter` leaves on each
  // rank the sums of its own part and unspecified values in the other parts. `all_gather` takes a
  // rank's own part and fills in the others.
  virtual void reduce_scatter(std::byte* data, std::size_t part, engine::DType dtype,
                              void* stream) = 0;
  virtual void all_gather(std::byte* data, std::size_t part, engine::DType dtype, void* stream) = 0;
  // Sends `count` elements of rank `root` to all.
  virtual void broadcast(std::byte* data, std::size_t count, engine::DType dtype, int root,
                         void* stream) = 0;

  // Registers memory that collectives will often use, such as a whole arena, so that they need no
  // copies of it. It must live until it is removed or the communicator is gone. Not collective.
  virtual void add_memory(std::byte* data, std::size_t bytes) = 0;
  virtual void remove_memory(const std::byte* data) = 0;
  // Allocates GPU memory as NCCL prefers it, a little more than requested. Its content is
  // unspecified.
  virtual engine::Buffer allocate(std::size_t bytes) = 0;

  // Throws if anything that was queued has failed since. Takes a microsecond.
  virtual void check() = 0;
  // Waits until `done`, which queries an event behind the queued work. Checks meanwhile; has the
  // deadline.
  virtual void wait(const std::function<bool()>& done) = 0;
  // Ends all work at once, since another rank failed. Later calls throw `why`.
  virtual void abort(const engine::Error& why) noexcept = 0;
};

}  // namespace lockstep::collectives
