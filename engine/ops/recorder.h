// SPDX-License-Identifier: MIT
// Captures the work that replicas queue for their devices and repeats it at the cost of one call:
// on GPUs a CUDA graph. Captured calls must be the same each time, with the same addresses.
// Changing values lie in memory that kernels read (StepState). Each replica has one Recorder, owned
// by its Ops. Replicas of one process whose sums wait for each other are captured together, and the
// first of them launches everything.
//
// To capture, all call `begin` (the others after the first has returned), queue their work, then
// call `leave`; after all others have left, the first calls `end`. Work queued in between, by Ops
// or by `reduce` on any thread, does not run. Calls that cannot be captured (a wait, memory of the
// host) are skipped, `end` names them, and nothing is kept. Nothing queued before `begin` may be
// waited for in between. To repeat, all call `ready`; then the first calls `repeat`; then the
// others call `follow`. A repetition runs after everything that each replica has queued before it,
// and before what it queues next. Threads: each replica's computing thread. Cost: a capture costs
// as much as queueing, plus milliseconds in `end`; a repetition some microseconds. Errors:
// Error(kDevice).
#pragma once
#include <span>
#include <string>

namespace lockstep::engine {

class Recorder {
 public:
  virtual ~Recorder() = default;
  // Begins a capture. `number`: a small number that identifies it; an earlier capture with the same
  // number is discarded. `first`: null for the first replica.
  virtual void begin(int number, Recorder* first) = 0;
  virtual void leave() = 0;
  // Returns an empty string if the capture can be repeated, else the reason why not.
  virtual std::string end(std::span<Recorder* const> others) = 0;

  virtual void ready() = 0;
  virtual void repeat(int number, std::span<Recorder* const> others) = 0;
  virtual void follow(int number, Recorder& first) = 0;
};

}  // namespace lockstep::engine
