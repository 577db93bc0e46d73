// SPDX-License-Identifier: MIT
// Collectives among devices by their vendor's library, one rank each: NCCL's (nccl/). Calls queue
// work on a stream and return when it is queued: data is there when the stream is through. All are
// in place, and collective: all ranks make the same calls in the same order with the same counts
// and types.
//
// Memory belongs to the GPU that was current when the communicator was made, and must live until
// the stream is through. `stream` is a CUstream of that GPU. One thread at a time. A call costs
// some microseconds, the first ones of a kind up to seconds, for connections are made then.
//
// Every wait has a deadline. What fails, here or elsewhere, aborts the communicator: what it had
// queued ends at once, unfinished, and every later call throws the same again. Errors, naming rank
// and call: Error(kPeerLost) where a rank or the way to it is gone, Error(kDevice) for what else
// NCCL reports, with its words; Error(kTimeout); Error(kInvalid) for what cannot be asked.
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
  bool hierarchical = false;                  // by hosts (nccl/hierarchical.h), not all ranks alike
  std::chrono::milliseconds deadline{60000};  // of each wait
  std::chrono::milliseconds closing{2000};    // of an orderly end: then it is aborted
  std::function<void()> throw_if_lost = [] {};  // asked in waits: throws where a rank is known lost
};

class DeviceCommunicator {
 public:
  // What was queued must be through. Ends in the order of DeviceCommunicatorOptions::closing at
  // most; never throws.
  virtual ~DeviceCommunicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Of `count` elements of each rank everybody has the sums. Numbers of 16 bits may be rounded at
  // each addition. All ranks have the same bits.
  virtual void all_reduce(std::byte* data, std::size_t count, engine::DType dtype,
                          void* stream) = 0;
  // Parts of `part` elements, one for each rank, one behind the other: each rank keeps the sums of
  // its own part, the others hold anything then; or each rank has its own and gets the others.
  virtual void reduce_scatter(std::byte* data, std::size_t part, engine::DType dtype,
                              void* stream) = 0;
  virtual void all_gather(std::byte* data, std::size_t part, engine::DType dtype, void* stream) = 0;
  // `count` elements of rank `root` to all.
  virtual void broadcast(std::byte* data, std::size_t count, engine::DType dtype, int root,
                         void* stream) = 0;

  // Tells of memory that collectives will often work on, so that they need no copies of it: an
  // arena, whole. It must live until it is removed, or the communicator is gone. Not collective.
  virtual void add_memory(std::byte* data, std::size_t bytes) = 0;
  virtual void remove_memory(const std::byte* data) = 0;
  // Memory of the GPU as NCCL likes it best, a little more than was asked for; holds anything.
  virtual engine::Buffer allocate(std::size_t bytes) = 0;

  // Throws where something failed since, in whatever was queued. A microsecond.
  virtual void check() = 0;
  // Until `done`, which asks an event behind what was queued: checks, and has the deadline.
  virtual void wait(const std::function<bool()>& done) = 0;
  // Another rank failed: ends all at once. Later calls throw `why`.
  virtual void abort(const engine::Error& why) noexcept = 0;
};

}  // namespace lockstep::collectives
