// SPDX-License-Identifier: MIT
// A profiler that looks at this process from outside, such as Nsight Systems: it is told what the
// process does as named ranges of time, and shows them beside what it sees itself. A port: the one
// that there is stands in engine/cuda/nvtx.h. Where there is none, a null pointer: a range is then
// one comparison.
//
// Threads: any. Costs what the tool does with it: some hundred nanoseconds a call. Nothing throws.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::engine {

class Profiler {
 public:
  // A text that the profiler keeps. It lives as long as the profiler.
  struct Name {
    const void* handle = nullptr;
  };
  virtual ~Profiler() = default;
  // The same text has the same name. Takes a lock and may allocate: before the steps.
  virtual Name name(const std::string& text) = 0;

  // Of this thread, within each other: what was pushed last is popped first.
  virtual void push(Name name) = 0;
  virtual void push(const char* text) = 0;  // is copied
  virtual void pop() = 0;

  // Of any thread, to be ended by any: these may overlap.
  virtual std::uint64_t start(Name name) = 0;
  virtual void end(std::uint64_t range) = 0;
};

// From here to the end of the scope. `profiler` may be null.
class ProfilerRange {
 public:
  ProfilerRange(Profiler* profiler, const char* text) : profiler_(profiler) {
    if (profiler_ != nullptr) profiler_->push(text);
  }
  ~ProfilerRange() {
    if (profiler_ != nullptr) profiler_->pop();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  Profiler* profiler_;
};

}  // namespace lockstep::engine
