// SPDX-License-Identifier: MIT
// What the loop of one replica does, recorded while this lives, and told to the profiler that looks
// at the process (Strategy::profiler), where there is one. Without either it does nothing: a span
// is then one comparison. The replica's thread.
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

  // From here to the end of the scope.
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

  // `profile` and `profiler` may be null. `parts`: micro-batches of a step.
  Recording(Profile* profile, Profiler* profiler, Replica& replica, int parts);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  Span span(Part part) const;
  Span step(std::int64_t step) const;  // the whole of it; begins or ends the recording

 private:
  Timeline* wanted() const;  // null: nobody wants spans
  // The profiler's ranges are those in which layers are queued: the host does not wait for these.
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
