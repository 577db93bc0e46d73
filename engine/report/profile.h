// SPDX-License-Identifier: MIT
// What the replicas of this process do in a few steps of a fit, as timelines: layers, loss, input,
// calls of the strategy, and what the strategy adds of its own (buckets, waits).
//
//   Profile profile(20);
//   trainer.fit(data, {.profile = &profile});
//   const std::string trace = chrome_trace(strategy, profile);   // trace.h
//
// Which steps: the first ten are left out, since caches and memory are not yet what they become;
// fewer are, where the run has not so many. The same on all replicas.
//
// Outlives the fit. Threads: `timeline` from any, `records` too; `choose` before the replicas run.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "engine/report/timeline.h"

namespace lockstep::engine {

class Profile {
 public:
  static constexpr std::int64_t kLeftOut = 10;                     // steps
  static constexpr std::size_t kMostSpans = std::size_t(1) << 20;  // of a replica: 24 MiB

  explicit Profile(std::int64_t steps = 20);
  std::int64_t steps() const { return steps_; }
  // A fit begins: its first step, and where it ends.
  void choose(std::int64_t first, std::int64_t end);
  bool records(std::int64_t step) const { return step >= from_ && step < from_ + steps_; }
  Timeline& timeline(int rank);  // made when asked for first
  const std::map<int, std::unique_ptr<Timeline>>& timelines() const { return timelines_; }

 private:
  std::int64_t steps_, from_ = 0;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Timeline>> timelines_;
};

}  // namespace lockstep::engine
