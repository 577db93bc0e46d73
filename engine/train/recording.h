// SPDX-License-Identifier: MIT
// Records what the training loop of one replica does while this object lives, and reports it to the
// profiler that observes the process (Strategy::profiler). Without a profile and a profiler a span
// costs one comparison. Used on the replica's thread.
#pragma once
#include <map>
#include <string>

#include "engine/report/profile.h"
#include "engine/train/strategy.h"

namespace lockstep::engine {

class Recording : private Observer {
 public:
  enum class Part : std::uint8_t {
    kStep,
    kInput,
    kLoss,
    kBeforeForward,
    kGradientReady,
    kFinish,
    kReport,
    kSettle
  };

  // Measures from its construction to the end of the scope.
  class Span {
   public:
    Span(Timeline* timeline, int kind, std::int64_t number = -1)
        : timeline_(timeline),
          kind_(kind),
          begin_(timeline != nullptr ? Clock::now() : Clock::time_point{}) {
      if (timeline_ != nullptr) timeline_->begin(kind, number);
    }
    ~Span() {
      if (timeline_ != nullptr) timeline_->add(kind_, begin_, Clock::now());
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Timeline* timeline_;
    int kind_;
    Clock::time_point begin_;
  };

  // `profile` and `profiler` may be null. `parts`: micro-batches per step.
  Recording(Profile* profile, Profiler* profiler, Replica& replica, int parts);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  Span span(Part part) const;
  Span step(std::int64_t step) const;  // whole step; starts or stops recording

 private:
  Timeline* wanted() const;  // null: spans are not wanted
  // The profiler's ranges cover the queuing of layers; the host does not wait for them.
  bool timed() const override { return timeline_->records(); }
  void begins(const std::string& name, Pass pass) override;
  void layer(const std::string& name, Pass pass, Clock::time_point begin, Clock::time_point end,
             Tensor y) override;
  Profile* profile_;
  Replica& replica_;
  Timeline* timeline_ = nullptr;
  std::map<std::string, int> layers_[2];  // kinds, by pass and name
};

}  // namespace lockstep::engine
