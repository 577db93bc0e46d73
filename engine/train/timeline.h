// SPDX-License-Identifier: MIT
// What happened when, of one replica: spans of time in memory that is taken before the first of
// them. A span is 24 bytes; `add` costs about 20 ns and allocates nothing. What no longer fits is
// counted and left out.
//
// Threads: `add` and `records` from any thread; all else from the replica's own. Spans are read
// when all who add have ended (after Strategy::run).
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::engine {

class Timeline {
 public:
  // Spans of the computing lane nest, since one thread makes them; those of communication overlap.
  enum class Lane : std::uint8_t { kComputing, kCommunication };
  struct Kind {
    Lane lane = Lane::kComputing;
    std::string category = {};   // "forward"
    std::string name = {};       // "conv1"
    std::string arguments = {};  // what else is to be said, a JSON object; empty: nothing
  };
  struct Span {
    int kind = 0;
    std::int64_t begin = 0, end = 0;  // nanoseconds of Clock
  };
  struct Step {
    std::int64_t number = 0, begin = 0;
  };

  explicit Timeline(int rank) : rank_(rank) {}
  int rank() const { return rank_; }
  // The kind of this lane, category and name: finds it, or adds it. Before the first span.
  int kind(Kind kind);
  // Takes the memory, once; later calls do nothing.
  void reserve(std::size_t spans, std::size_t steps);

  // What begins from now on is recorded, as part of this step.
  void begin_step(std::int64_t step);
  // What begins from now on is not; what has begun still is, when it ends.
  void end_steps();
  bool records() const { return begin_.load(std::memory_order_relaxed) < kNever && !ended(); }
  void add(int kind, Clock::time_point begin, Clock::time_point end);

  const std::vector<Kind>& kinds() const { return kinds_; }
  const std::vector<Step>& steps() const { return steps_; }
  std::vector<Span> spans() const;  // by begin; of two that begin at once the longer one first
  std::size_t left_out() const;     // spans that did not fit

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  bool ended() const { return end_.load(std::memory_order_relaxed) < kNever; }
  int rank_;
  std::vector<Kind> kinds_;
  std::map<std::pair<std::string, std::string>, int> index_;  // by category and name
  std::vector<Span> spans_;
  std::vector<Step> steps_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::int64_t> begin_{kNever}, end_{kNever};  // of the stretch that is recorded
};

}  // namespace lockstep::engine
