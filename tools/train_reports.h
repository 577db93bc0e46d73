// SPDX-License-Identifier: MIT
// Output of a training run for people and files: the heading, the progress, checkpoints, and the
// result. Only the chief's object prints. With --quiet it prints only results. Not thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/data/sets.h"
#include "engine/train/trainer.h"
#include "tools/progress.h"
#include "tools/records.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

class TrainReports {
 public:
  // All references must outlive this object. `optimizer`: as text.
  TrainReports(const TrainFlags& f, const engine::data::Sets& sets,
               const engine::Strategy& strategy, Records& records, std::string optimizer,
               const engine::Log& log);

  // Registers this object for the events of `fit`; it must outlive the run.
  void listen(engine::FitOptions& fit);
  // Reports the end of the run. `memory`: lines about GPUs. Collective.
  void end(const engine::History& history, const std::vector<std::string>& memory,
           engine::Strategy& strategy);

 private:
  void begin(std::int64_t done, std::int64_t steps);
  void saved(std::int64_t step);
  void tell_checkpoint();
  void print_result(const engine::History& history) const;

  const TrainFlags& f_;
  const engine::data::Sets& sets_;
  const engine::Strategy& strategy_;
  Records& records_;
  const engine::Log& log_;
  std::string optimizer_;
  bool fresh_;  // the folder holds no checkpoint before the run
  bool chief_;
  Progress progress_, results_;
  // Steps of the last checkpoint, and of the last one in the output.
  std::int64_t saved_ = -1, told_ = -1;
  engine::Clock::time_point next_line_ = {};
};

}  // namespace lockstep::tools
