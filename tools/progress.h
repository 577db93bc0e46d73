// SPDX-License-Identifier: MIT
// Where a training run is, for people: on a terminal one line that is rewritten (at most ten times
// a second), elsewhere a plain line now and then. Standard error. The chief's step thread calls
// step; the others from the thread that owns it, in between.
#pragma once
#include <string>

#include "engine/train/trainer.h"

namespace lockstep::tools {

class Progress {
 public:
  // `visible`: false on processes that are not the chief.
  Progress(bool visible, std::int64_t examples_per_epoch);
  void step(const engine::StepReport& report);
  void epoch(std::int64_t epoch, const engine::StepReport& last);
  void evaluation(const engine::Evaluation& test, std::int64_t epochs);
  void say(const std::string& line);  // a line of its own
  void close();

 private:
  std::string line(const engine::StepReport& report) const;
  void erase();
  bool visible_, terminal_;
  std::int64_t examples_per_epoch_;
  engine::Clock::time_point start_ = engine::Clock::now(), last_{};
  std::int64_t first_step_ = -1, last_step_ = -1;
  double rate_ = 0;  // examples/s of all workers, smoothed
  bool drawn_ = false;
};

}  // namespace lockstep::tools
