// SPDX-License-Identifier: MIT
// Timelines of the replicas of this process in a few steps of a fit: layers, loss, input, calls of
// the strategy, and what the strategy adds (buckets, waits).
//
//   Profile profile(20);
//   trainer.fit(data, {.profile = &profile});
//   const std::string trace = chrome_trace(strategy, profile);   // trace.h
//
// The first ten steps are skipped, because caches and memory have not settled; fewer are skipped if
// the run is too short. The steps are the same on all replicas.
//
// Must outlive the fit. Any thread may call `timeline` and `records`; `choose` comes before the
// replicas run.
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
  static constexpr std::size_t kMostSpans = std::size_t(1) << 20;  // per replica: 24 MiB

  explicit Profile(std::int64_t steps = 20);
  std::int64_t steps() const { return steps_; }
  // Chooses the steps of a fit from its first step and its end.
  void choose(std::int64_t first, std::int64_t end);
  bool records(std::int64_t step) const { return step >= from_ && step < from_ + steps_; }
  Timeline& timeline(int rank);  // created on the first request
  const std::map<int, std::unique_ptr<Timeline>>& timelines() const { return timelines_; }

 private:
  std::int64_t steps_, from_ = 0;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Timeline>> timelines_;
};

}  // namespace lockstep::engine
