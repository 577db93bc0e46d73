// SPDX-License-Identifier: MIT
// What happened when, of one replica: spans of time in memory that is taken before the first of
// them. A span is 24 bytes; `add` costs about 20 ns and allocates nothing. What no longer fits is
// counted and left out.
//
// A profiler that looks at the process (engine/base/profiler.h) is told of the same marks, of all
// steps: `begin` and `add` are the two ends of a range, which is pushed and popped where it is of
// the computing lane, and may overlap others where it is of communication.
//
// Threads: `begin`, `add` and `records` from any thread, but both ends of a computing span from
// one; all else from the replica's own. Spans are read when all who add have ended (after
// Strategy::run).
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/profiler.h"

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
  // Null: nobody. It outlives the timeline. Before the first span.
  void tell(Profiler* profiler);
  // The kind of this lane, category and name: finds it, or adds it. Before the first span.
  int kind(Kind kind);
  // Takes the memory, once; later calls do nothing.
  void reserve(std::size_t spans, std::size_t steps);

  // What begins from now on is recorded, as part of this step.
  void begin_step(std::int64_t step);
  // What begins from now on is not; what has begun still is, when it ends.
  void end_steps();
  bool records() const { return begin_.load(std::memory_order_relaxed) < kNever && !ended(); }
  // Whether it is of use that spans are added.
  bool wanted() const { return profiler_ != nullptr || records(); }
  // A span of this kind begins, for the profiler alone: `number`, if there is one, stands behind
  // its name. Each is ended by `add`.
  void begin(int kind, std::int64_t number = -1);
  void add(int kind, Clock::time_point begin, Clock::time_point end);
  // For the profiler: what has begun, and nobody will add.
  void end_ranges();

  const std::vector<Kind>& kinds() const { return kinds_; }
  const std::vector<Step>& steps() const { return steps_; }
  std::vector<Span> spans() const;  // by begin; of two that begin at once the longer one first
  std::size_t left_out() const;     // spans that did not fit

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  // What the profiler knows of a kind.
  struct Told {
    Profiler::Name name;
    std::atomic<std::uint64_t> range{0};  // of communication, in flight; 0: none
  };
  bool ended() const { return end_.load(std::memory_order_relaxed) < kNever; }
  void name(const Kind& kind, Told& told);
  int rank_;
  std::vector<Kind> kinds_;
  Profiler* profiler_ = nullptr;
  std::deque<Told> told_;                                     // by kind, where there is a profiler
  std::atomic<int> pushed_{0};                                // ranges of the computing lane
  std::map<std::pair<std::string, std::string>, int> index_;  // by category and name
  std::vector<Span> spans_;
  std::vector<Step> steps_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::int64_t> begin_{kNever}, end_{kNever};  // of the stretch that is recorded
};

}  // namespace lockstep::engine
