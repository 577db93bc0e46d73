// SPDX-License-Identifier: MIT
// Assigns the steps of a segment to workers. A segment is the part of a run between two moments at
// which all workers stop.
//
// Asynchronous: each step is one batch and goes to the worker that asks first. The unfinished steps
// of a lost worker are assigned again, so each example of an epoch is used once. It is used twice
// only if a worker is lost after its push was applied and before it reported the step.
// Synchronous: each step goes to every worker, as a share of its batch. A step is done when
// `aggregate` workers have finished it. A worker that is behind continues with the first step that
// is not done.
//
// Not thread-safe. `next` and `done` take some hundred nanoseconds.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/train/strategy.h"

namespace lockstep::strategies {

class Assignments {
 public:
  // An `aggregate` of 0 means asynchronous training. `warm_up`: in asynchronous training, worker 0
  // makes all steps below this number. Updates are large at the start of a run, and several workers
  // that make them at once would diverge.
  Assignments(int workers, int aggregate, std::int64_t warm_up = 0);
  // Begins a segment and forgets the last one.
  void begin(const engine::WorkSpec& work);
  // Returns the next step for this worker, or nothing if there is none now. A lost worker's step
  // may still come.
  std::optional<engine::Work> next(int worker);
  // Marks a step as finished: the servers have the worker's gradients.
  void done(int worker, std::int64_t step);
  // Takes back all steps that this worker has.
  void lost(int worker);
  // Assigns no new steps. Synchronous: all workers still make the last step that any of them has.
  void pause();
  // Calls `pause` and ends the run there.
  void stop();
  bool stopped() const { return stopped_; }
  // Returns whether no step is left or in progress.
  bool finished() const;
  // Returns whether this worker has to wait for worker 0 to finish the warm-up.
  bool warming_up(int worker) const;
  // Returns whether `next` would return a step for this worker.
  bool has_work_for(int worker) const;
  // Returns the first step that is not done (asynchronous: not assigned), and its position in the
  // data. Linear in the steps, if synchronous.
  engine::Standing standing() const;

 private:
  struct PerWorker {
    std::map<std::int64_t, engine::Work> works;
    std::int64_t next = 0;               // synchronous: the worker's next step
    engine::DataPosition position = {};  // its position in the data
  };
  std::optional<engine::Work> next_share(int worker);
  std::optional<engine::Work> next_batch(int worker);

  const int workers_, aggregate_;
  const std::int64_t warm_up_;
  engine::WorkSpec work_;
  bool stopped_ = false;
  std::int64_t end_ = 0;  // the first step that will not be assigned
  std::vector<PerWorker> by_worker_;
  // Asynchronous: the next step to assign, and steps of lost workers.
  std::int64_t next_ = 0;
  engine::DataPosition position_;
  std::map<std::int64_t, engine::Work> returned_;
  // Synchronous: the first step that is not done, and which workers have finished later ones.
  std::int64_t open_ = 0;
  std::map<std::int64_t, std::vector<bool>> finished_;
};

}  // namespace lockstep::strategies
