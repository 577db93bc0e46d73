// SPDX-License-Identifier: MIT
// A timeline of one replica: time spans in memory that is allocated before the first of them. A
// span has 24 bytes; `add` costs about 20 ns and allocates nothing. Spans that do not fit are
// counted and dropped.
//
// A profiler that observes the process (engine/base/profiler.h) receives the same spans, of all
// steps but those that a GPU repeats as one graph: `begin` and `add` are the two ends of a range.
// Ranges of the computing lane are pushed and popped; ranges of communication may overlap others.
//
// Threads: any thread calls `begin`, `add` and `records`, but the same one for both ends of a
// computing span; the replica's own calls the rest. Read spans after all that add have ended (after
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
  // Spans of the computing lane are nested, because one thread makes them; spans of communication
  // overlap.
  enum class Lane : std::uint8_t { kComputing, kCommunication };
  struct Kind {
    Lane lane = Lane::kComputing;
    std::string category = {};   // "forward"
    std::string name = {};       // "conv1"
    std::string arguments = {};  // further members, a JSON object, or empty
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
  // Sets the profiler; null removes it. It must outlive the timeline. Call it before the first
  // span.
  void tell(Profiler* profiler);
  // Returns the kind with this category and name, or adds it. Call it before the first span.
  int kind(Kind kind);
  // Allocates the memory, once; later calls do nothing.
  void reserve(std::size_t spans, std::size_t steps);

  // Records spans that begin from now on, as part of this step.
  void begin_step(std::int64_t step);
  // Stops recording spans that begin from now on. A span that has begun is still recorded at its
  // end.
  void end_steps();
  bool records() const { return begin_.load(std::memory_order_relaxed) < kNever && !ended(); }
  // Returns whether added spans have a use.
  bool wanted() const { return profiler_ != nullptr || records(); }
  // Begins a span of this kind, for the profiler only; `number`, unless negative, follows its name.
  // `add` ends each of them.
  void begin(int kind, std::int64_t number = -1);
  void add(int kind, Clock::time_point begin, Clock::time_point end);
  // Ends, for the profiler, the spans that have begun and that nobody will add.
  void end_ranges();

  const std::vector<Kind>& kinds() const { return kinds_; }
  const std::vector<Step>& steps() const { return steps_; }
  std::vector<Span> spans() const;  // by begin, then the longer ones first
  std::size_t left_out() const;     // spans that did not fit

 private:
  static constexpr std::int64_t kNever = INT64_MAX;
  // Holds what the profiler knows about a kind.
  struct Told {
    Profiler::Name name;
    std::atomic<std::uint64_t> range{0};  // communication in flight; 0: none
  };
  bool ended() const { return end_.load(std::memory_order_relaxed) < kNever; }
  void name(const Kind& kind, Told& told);
  int rank_;
  std::vector<Kind> kinds_;
  Profiler* profiler_ = nullptr;
  std::deque<Told> told_;                                     // by kind, if there is a profiler
  std::atomic<int> pushed_{0};                                // open ranges of the computing lane
  std::map<std::pair<std::string, std::string>, int> index_;  // by category and name
  std::vector<Span> spans_;
  std::vector<Step> steps_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::int64_t> begin_{kNever}, end_{kNever};  // begin and end of the recorded interval
};

}  // namespace lockstep::engine
