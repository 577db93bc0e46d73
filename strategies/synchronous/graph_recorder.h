// SPDX-License-Identifier: MIT
// Steps of the replicas of one process as recordings of their devices (engine/ops/recorder.h). A
// part of a step (a micro-batch: forward, loss, backward, and in the last one sums and updates) is
// queued call by call twice, so that every shape has its kernel and every buffer is there; the
// third time it is recorded, and from then on the host makes one call for it. Batches of another
// size than the recorded ones are queued call by call. Where a device refuses, everything stays so.
//
// One object a strategy, since `open`. Threads: each replica's own; all of them take the same parts
// in the same order. The first replica waits for the others before it starts what was recorded, and
// they until it has: never longer than the deadline, and what stops the team ends the wait. Cost of
// a repeated part: some microseconds, and these waits where there are several replicas. Errors:
// those of the recorders; Error(kTimeout).
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/run/team.h"
#include "engine/ops/recorder.h"

namespace lockstep::strategies {

class GraphRecorder {
 public:
  static constexpr int kBefore = 2;  // times that a part is queued before it is recorded

  // `replicas`: of this process, in order, none of them null. They outlive this, as the team does.
  GraphRecorder(std::vector<engine::Recorder*> replicas, const collectives::Team& team,
                std::chrono::milliseconds deadline);

  // What the replica `local` does with its next part, number `part` of a step of a batch of so many
  // examples over all replicas, of which `local_batch` are its own: the same for all replicas. The
  // largest batch so far is the one that is recorded.
  enum class Next : std::uint8_t { kQueue, kRecord, kRepeat };
  Next next(std::size_t local, int part, std::size_t global_batch, std::int64_t local_batch);
  // kRecord: what is queued in between is kept. False: it was refused, and nothing has been done;
  // nothing will be recorded from now on.
  void begin(std::size_t local, int part);
  bool end(std::size_t local);
  // kRepeat, and after a recording: does it.
  void repeat(std::size_t local, int part);

  // Of any thread: why nothing is recorded; empty where nothing was refused so far.
  std::string refusal() const;
  std::int64_t repeated() const;                   // parts, of the first replica, so far
  double waited_seconds(std::size_t local) const;  // of this replica for others, so far
  void set_deadline(std::chrono::milliseconds deadline);

 private:
  struct Seen {
    std::size_t global_batch = 0;  // the largest batch so far
    std::int64_t local_batch = 0;
    int times = 0;
    bool recorded = false;
  };
  bool is_first(std::size_t local) const { return local == 0; }
  // The others come, and the first goes on when all have; and the other way round.
  void gather(std::size_t local);
  void release(std::size_t local);
  template <class Reached>
  void wait(std::unique_lock<std::mutex>& lock, std::size_t local, const char* whom,
            Reached reached);

  std::vector<engine::Recorder*> replicas_, others_;
  const collectives::Team& team_;
  std::vector<std::map<int, Seen>> seen_;  // by replica, its thread's alone, and part
  mutable std::mutex mutex_;               // of what follows
  std::chrono::milliseconds deadline_;
  std::vector<double> waited_;  // by replica
  std::condition_variable changed_;
  std::uint64_t came_ = 0, gathered_ = 0;  // of the others, in all; and how many the first awaited
  std::uint64_t released_ = 0;             // how often
  std::vector<std::uint64_t> passed_;      // by replica
  std::string refusal_;
  std::int64_t repeated_ = 0;
};

}  // namespace lockstep::strategies
