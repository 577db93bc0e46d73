// SPDX-License-Identifier: MIT
// A profiler that observes this process from outside, such as Nsight Systems. It receives named
// time ranges and shows them beside its own data. An interface: engine/cuda/nvtx.h implements it.
// Without a profiler the pointer is null, and a range costs one comparison.
//
// Thread-safe. A call costs what the tool needs: some hundred nanoseconds. Nothing throws.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::engine {

class Profiler {
 public:
  // Identifies a text that the profiler stores; valid as long as the profiler.
  struct Name {
    const void* handle = nullptr;
  };
  virtual ~Profiler() = default;
  // Returns the same name for the same text. Takes a lock and may allocate, so call it before the
  // steps.
  virtual Name name(const std::string& text) = 0;

  // Opens and closes ranges of the calling thread. They nest: the last push is popped first.
  virtual void push(Name name) = 0;
  virtual void push(const char* text) = 0;  // the text is copied
  virtual void pop() = 0;

  // Starts and ends a range. Any thread may end it, and such ranges may overlap.
  virtual std::uint64_t start(Name name) = 0;
  virtual void end(std::uint64_t range) = 0;
};

// Marks a range from construction to the end of the scope. `profiler` may be null.
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
