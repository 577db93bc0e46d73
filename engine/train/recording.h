// SPDX-License-Identifier: MIT
// What the loop of one replica does, recorded while this lives. Without a profile it does nothing:
// a span is then one comparison. The replica's thread.
#pragma once
#include <map>
#include <string>

#include "engine/train/profile.h"
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
    Span(Timeline* timeline, int kind)
        : timeline_(timeline),
          kind_(kind),
          begin_(timeline != nullptr ? Clock::now() : Clock::time_point{}) {}
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

  // `profile` may be null. `parts`: micro-batches of a step.
  Recording(Profile* profile, Replica& replica, int parts);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  Span span(Part part) const;
  Span step(std::int64_t step) const;  // the whole of it; begins or ends the recording

 private:
  void layer(const std::string& name, Pass pass, Clock::time_point begin, Clock::time_point end,
             Tensor y) override;
  Profile* profile_;
  Replica& replica_;
  Timeline* timeline_ = nullptr;
  std::map<std::string, int> layers_[2];  // kinds, by pass and name
};

}  // namespace lockstep::engine
