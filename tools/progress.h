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
  // `visible`: false on processes that are not the chief, and with --quiet.
  explicit Progress(bool visible);
  void step(const engine::StepReport& report);
  void epoch(std::int64_t epoch);  // prints means over the epoch's steps of this run
  // Prints the epochs if the last reported step ended one, else the steps.
  void evaluation(const engine::Evaluation& test, std::int64_t steps, std::int64_t epochs);
  void say(const std::string& line);  // a line of its own
  void close();

 private:
  std::string line(const engine::StepReport& report) const;
  void add(const engine::StepReport& report, double rate);
  void erase();
  bool visible_, terminal_;
  engine::Clock::time_point start_ = engine::Clock::now(), last_{};
  std::int64_t first_step_ = -1, last_step_ = -1, epoch_end_ = -1;
  double rate_ = 0;  // examples/s of all workers, smoothed
  // Sums over the examples of the current epoch.
  struct Sums {
    std::int64_t epoch = -1;
    double examples = 0, loss = 0, accuracy = 0;
    double timed = 0,
           seconds = 0;  // without the run's first step, of which the others' are unknown
  } sums_;
  bool drawn_ = false;
};

}  // namespace lockstep::tools
