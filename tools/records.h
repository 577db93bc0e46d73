// SPDX-License-Identifier: MIT
// What a training run leaves for other programs beside its result: JSON lines (--log),
// TensorBoard's event file (--summary), a trace (--profile). The chief's files are opened before
// training begins, so that a path that cannot be written is known at once. Both records of steps
// get the same numbers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/whole_file.h"
#include "engine/report/event_log.h"
#include "engine/report/profile.h"
#include "engine/report/summary.h"
#include "engine/train/trainer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

class Records {
 public:
  // `chief`: writes; the others only record. Throws Error(kIo) for what cannot be written.
  Records(const TrainFlags& flags, bool chief, const engine::Log& log);
  // The chief's step thread, and the trainer's thread in between.
  void step(const engine::StepReport& report);
  void evaluation(const engine::Evaluation& test, std::int64_t steps, std::int64_t epochs);
  void checkpoint(std::int64_t step);
  engine::Profile* profile() { return profile_ ? &*profile_ : nullptr; }
  // After training: the trace. Collective.
  void close(engine::Strategy& strategy);
  // After close: what the chief wrote, of checkpoints the last one.
  std::vector<std::string> files() const;

 private:
  engine::Log log_;
  std::string folder_, log_file_, trace_file_;  // as the flags name them
  std::int64_t checkpoint_ = -1;                // the step of the last one
  std::optional<engine::EventLog> events_;
  std::optional<engine::Summary> summary_;
  std::optional<engine::Profile> profile_;
  std::optional<engine::WholeFile> trace_;
};

}  // namespace lockstep::tools
