// SPDX-License-Identifier: MIT
// Shows the progress of a training run on standard error. A terminal gets one line that is
// rewritten, at most ten times a second; other outputs get a plain line now and then. The chief's
// step thread calls `step`; the owning thread calls the others, in between.
#pragma once
#include <string>

#include "engine/train/trainer.h"

namespace lockstep::tools {

class Progress {
 public:
  // Creates the display. `visible`: false on processes that are not the chief, and with --quiet.
  explicit Progress(bool visible);
  void begin();  // starts the clock of the run
  void step(const engine::StepReport& report);
  void epoch(const engine::EpochReport& report);
  // Prints the number of epochs if the last reported step ended one, else the number of steps.
  void evaluation(const engine::Evaluation& test, std::int64_t steps, std::int64_t epochs);
  // Prints the number of this run's steps, the time since `begin`, and the times of a step.
  void steps(const engine::History& history);
  void say(const std::string& line);  // prints a separate line
  // Returns "test after 6 epochs: loss 0.02, accuracy 0.99".
  static std::string evaluation_text(const engine::Evaluation& test, const std::string& when);
  void close();

 private:
  std::string line(const engine::StepReport& report) const;
  void erase();
  bool visible_, terminal_;
  engine::Clock::time_point begin_{}, start_ = engine::Clock::now(), last_{};
  std::int64_t first_step_ = -1, last_step_ = -1, epoch_end_ = -1;
  double rate_ = 0;  // examples/s of all workers, smoothed
  bool drawn_ = false;
};

}  // namespace lockstep::tools
