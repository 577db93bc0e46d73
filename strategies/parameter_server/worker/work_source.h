// SPDX-License-Identifier: MIT
// The interface by which a process's workers get steps and report them. The implementations are the
// chief's Scheduler and the other processes' SchedulerClient. Each worker's thread calls it only
// for its own worker.
#pragma once
#include <cstdint>
#include <optional>

#include "engine/train/strategy.h"

namespace lockstep::strategies {

// Holds the part of a run between two moments at which all workers stop.
struct Segment {
  engine::WorkSpec work = {};
  std::uint64_t number = 0;      // 0: none
  std::uint64_t generation = 0;  // generation of the servers' shards
  // Synchronous: step n needs the weights of version n + base.
  std::int64_t base = 0;
};

class WorkSource {
 public:
  virtual ~WorkSource() = default;
  // Returns the next step of this process's segment, or nothing if there is none now.
  virtual std::optional<engine::Work> next(int worker) = 0;
  // Reports a step whose gradients the servers have. May be sent with the next call.
  virtual void done(int worker, std::int64_t step) = 0;
  // Synchronous: reports the sums of this worker's shares of the steps since its last report, up to
  // `step`. May be sent with the next call.
  virtual void report(int worker, std::int64_t step, const engine::Totals& share) = 0;
  virtual void flush(int worker) = 0;  // sends reports that are still unsent
  virtual void stop(int worker) = 0;   // ends the run after the steps in progress
  virtual bool stopped() const = 0;
};

}  // namespace lockstep::strategies
