// SPDX-License-Identifier: MIT
// Which worker does what of a segment of a run: the steps between two moments at which all stop.
//
// Asynchronous: each step goes to whoever asks first, as one batch. What a worker that is lost had
// not finished goes to the others again, so each example of an epoch is used (once, but for a push
// that was applied and whose end was not heard of).
// Synchronous: each step is every worker's, a share of its batch each. A step is done when
// `aggregate` have finished theirs; a worker that is behind goes on with the first step that is
// not.
//
// Pure but for its lock: any thread. A call costs some hundred nanoseconds.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/train/strategy.h"

namespace lockstep::strategies {

class WorkDealer {
 public:
  // `aggregate`: 0 for asynchronous. `warm_up`: asynchronous, steps below that number are all
  // worker 0's: the first ones go far, and the far ones apart where several make them at once.
  WorkDealer(int workers, int aggregate, std::int64_t warm_up = 0);
  // A new segment. What was dealt before is forgotten.
  void begin(const engine::WorkSpec& work);
  // The next for this worker; nothing: there is none now. Others may still be lost.
  std::optional<engine::Work> next(int worker);
  // The worker's gradients of that step are with the servers.
  void done(int worker, std::int64_t step);
  void lost(int worker);  // whatever it has is dealt anew
  // Deals no more; synchronous: than what brings all to the step that the foremost has.
  void pause();
  void stop();  // the same, and the run ends there
  bool stopped() const;
  // Nothing is left to do, nor under way.
  bool finished() const;
  // Nothing is dealt to this worker yet, but will be.
  bool warming_up(int worker) const;
  // Something could be dealt to this worker now.
  bool waiting_for(int worker) const;
  // Steps done in order of the data, without gaps; after `finished`, all that were dealt.
  engine::Standing standing() const;

 private:
  struct Held {  // by one worker
    std::map<std::int64_t, engine::Work> works;
    std::int64_t next = 0;               // synchronous: the step that it gets next,
    engine::DataPosition position = {};  // and where the data stands before it
  };
  std::optional<engine::Work> next_share(int worker);
  std::optional<engine::Work> next_batch(int worker);
  bool held_back(int worker) const;
  void close();  // the lock is held

  const int workers_, aggregate_;
  const std::int64_t warm_up_;
  mutable std::mutex mutex_;
  engine::WorkSpec work_;
  bool stopped_ = false;
  std::int64_t end_ = 0;  // no step from there on is dealt
  std::vector<Held> held_;
  // Asynchronous: where dealing is, and what came back.
  std::int64_t dealt_ = 0;
  engine::DataPosition position_;
  std::map<std::int64_t, engine::Work> returned_;
  // Synchronous: the first step that is not done, and who has finished those from there on.
  std::int64_t open_ = 0;
  std::map<std::int64_t, std::vector<bool>> finished_;
};

}  // namespace lockstep::strategies
