// SPDX-License-Identifier: MIT
// Graph capture of the steps of one process's replicas (engine/ops/recorder.h). A part of a step is
// a micro-batch: forward, loss, backward and, in the last one, sums and updates. Each part is
// queued call by call twice, so that all kernels are chosen and all buffers exist. The third time
// it is captured; from then on the host makes one call for it. Batches of other sizes are always
// queued call by call. If a device refuses the capture, everything stays call by call.
//
// One object per strategy, from `open` on. Threads: each replica's own; all take the same parts in
// the same order. The first replica waits for the others before it launches a graph, and the others
// wait for the launch. These waits end at the deadline or when the team stops. A repeated part
// costs some microseconds and, with several replicas, these waits. Errors: the recorders' errors,
// and Error(kTimeout).
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
  // Times that a part is queued before it is captured.
  static constexpr int kBefore = 2;

  // Takes this process's replicas in order, none of them null. They and the team must outlive
  // this object.
  GraphRecorder(std::vector<engine::Recorder*> replicas, const collectives::Team& team,
                std::chrono::milliseconds deadline);

  // Returns what replica `local` does with part `part` of a step. `global_batch`: the examples of
  // all replicas; `local_batch`: its own. All replicas get the same answer. The largest batch so
  // far is the one that is captured.
  enum class Next : std::uint8_t { kQueue, kRecord, kRepeat };
  Next next(std::size_t local, int part, std::size_t global_batch, std::int64_t local_batch);
  // Captures the calls between `begin` and `end`, after kRecord. `end` returns false if the capture
  // was refused: nothing was executed, and nothing will be captured from now on.
  void begin(std::size_t local, int part);
  bool end(std::size_t local);
  // Launches the captured part, after kRepeat or a capture.
  void repeat(std::size_t local, int part);

  // Returns why nothing is captured; empty if nothing was refused so far. Thread-safe.
  std::string refusal() const;
  std::int64_t repeated() const;                   // parts of the first replica, so far
  double waited_seconds(std::size_t local) const;  // waits for other replicas, so far
  void set_deadline(std::chrono::milliseconds deadline);

 private:
  struct Seen {
    std::size_t global_batch = 0;  // the largest batch so far
    std::int64_t local_batch = 0;
    int times = 0;
    bool recorded = false;
  };
  bool is_first(std::size_t local) const { return local == 0; }
  // `gather`: the first replica waits until all others arrive. `release`: the others wait for the
  // first.
  void gather(std::size_t local);
  void release(std::size_t local);
  template <class Reached>
  void wait(std::unique_lock<std::mutex>& lock, std::size_t local, const char* whom,
            Reached reached);

  std::vector<engine::Recorder*> replicas_, others_;
  const collectives::Team& team_;
  // Entries by replica, each used only by its thread, and by part.
  std::vector<std::map<int, Seen>> seen_;
  mutable std::mutex mutex_;  // guards the members below
  std::chrono::milliseconds deadline_;
  std::vector<double> waited_;  // by replica
  std::condition_variable changed_;
  // Total arrivals of the other replicas; arrivals that the first has awaited.
  std::uint64_t came_ = 0, gathered_ = 0;
  std::uint64_t released_ = 0;         // number of releases
  std::vector<std::uint64_t> passed_;  // by replica
  std::string refusal_;
  std::int64_t repeated_ = 0;
};

}  // namespace lockstep::strategies
