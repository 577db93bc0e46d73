// SPDX-License-Identifier: MIT
// What replicas queue for their devices, kept as one piece, and done again and again at the cost of
// one call: on GPUs a CUDA graph. It serves calls that are the same each time, with the same
// addresses; what changes between repetitions lies in memory that kernels read (StepState). Each
// replica has one Recorder, which its Ops own; replicas of one process whose sums wait for each
// other are recorded together, and one of them, the first, starts all of it.
//
// To record, all of them call `begin` (the others when the first has returned), then queue their
// work, then `leave`; when all others have left the first calls `end`. What is queued in between,
// by Ops or by `reduce` on any thread, is not done. What cannot be recorded (a wait, memory of the
// host) is passed over, and `end` says what it was; then nothing is kept. Nothing queued before
// `begin` may be waited for in between: the recorded work comes behind all that each replica has
// queued when it is repeated.
//
// To repeat, all call `ready`; when all others have, the first calls `repeat`; then the others
// `follow`. What they queue next comes behind it.
//
// Threads: each replica's computing thread. Cost: recording as much as queueing, and milliseconds
// in `end`; repeating some microseconds. Errors: Error(kDevice).
#pragma once
#include <span>
#include <string>

namespace lockstep::engine {

class Recorder {
 public:
  virtual ~Recorder() = default;
  // `number`: of the recording, a small one; one that has it already is given up. `first`: null for
  // the first.
  virtual void begin(int number, Recorder* first) = 0;
  virtual void leave() = 0;
  // Empty: it can be repeated. Else why not.
  virtual std::string end(std::span<Recorder* const> others) = 0;

  virtual void ready() = 0;
  virtual void repeat(int number, std::span<Recorder* const> others) = 0;
  virtual void follow(int number, Recorder& first) = 0;
};

}  // namespace lockstep::engine
