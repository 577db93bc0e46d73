// SPDX-License-Identifier: MIT
// Where a process's workers get their steps: from the chief's own coordinator (coordinator.h), or
// by calls to it (follower.h). Calls of one worker come from that worker's thread.
#pragma once
#include <cstdint>
#include <optional>

#include "engine/train/strategy.h"

namespace lockstep::strategies {

// The steps between two moments at which all stop.
struct Segment {
  engine::WorkSpec work = {};
  std::uint64_t number = 0;      // 0: none
  std::uint64_t generation = 0;  // of the servers' shards
  std::int64_t base = 0;         // synchronous: step n needs the weights of version n + base
};

class WorkSource {
 public:
  virtual ~WorkSource() = default;
  // The next step of the segment that this process was given; nothing: there is none now.
  virtual std::optional<engine::Work> next(int worker) = 0;
  // The gradients of a step are with the servers. May be told with the next call.
  virtual void done(int worker, std::int64_t step) = 0;
  // Synchronous: the sums of this worker's shares of the steps since its last report, of which
  // `step` is the last. May be told with the next call.
  virtual void report(int worker, std::int64_t step, const engine::Totals& share) = 0;
  virtual void flush(int worker) = 0;  // what was not told yet is
  virtual void stop(int worker) = 0;   // all are to stop after the steps that they have
  virtual bool stopped() const = 0;
};

}  // namespace lockstep::strategies
