// SPDX-License-Identifier: MIT
// Files that a training run writes for other programs: JSON lines (--log), TensorBoard's event file
// (--summary), a trace (--profile). The chief opens its files before training begins, so that a
// path that cannot be written is reported at once. Log and summary get the same numbers.
//
// Steps are numbered from 1. Evaluations and checkpoints have the number of the last step before
// them. Events of the log: start (of a run, and again after a retry), step, evaluation, checkpoint,
// end (absent if the process was killed), with servers traffic (worker 0's bytes and rows in the
// step), and with scaled losses loss_scale. A run that continues repeats the steps after its
// `first_step`, which an earlier run may have logged.
// rank0_waited_ms is the wait of rank 0's thread in the step. Without a value (train_result.h)
// accuracy, top5 and auc are null in the log and absent from the summary. The trace is FILE.partial
// until training has ended. It aligns the clocks of other hosts by the median of nine meetings
// after training; later drift is not seen.
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
  // Opens the files. `chief`: this process writes; the others only record. Throws Error(kIo) if a
  // file cannot be written.
  Records(const TrainFlags& flags, bool chief, const engine::Log& log);
  // The chief's step thread calls `step`; the trainer's thread calls the others in between.
  // `done`: steps before the first one, of all `steps`. Fields: model, data, strategy, replicas,
  // batch, optimizer, seed, algorithm, version, first_step, steps.
  void start(const TrainFlags& flags, const engine::Strategy& strategy,
             const std::string& optimizer, const std::string& data, std::int64_t done,
             std::int64_t steps);
  // Fields: step, loss, accuracy, rate, examples_per_second, rank0_waited_ms; of loss_scale: step,
  // loss_scale, skipped_steps; of traffic: step, bytes_pulled, bytes_pushed, rows_pulled,
  // rows_pushed.
  void step(const engine::StepReport& report);
  // Fields: step, epoch, loss, accuracy, top5, auc.
  void evaluation(const engine::Evaluation& test, std::int64_t steps, std::int64_t epochs);
  void checkpoint(std::int64_t step);  // field: step
  engine::Profile* profile() { return profile_ ? &*profile_ : nullptr; }
  // `reason`: "done", the name of a signal, or the text of an error. Fields: step, reason.
  void end(std::int64_t step, const std::string& reason);
  void failed(const std::string& error) { end(step_, error); }
  // Writes the trace after training. Collective.
  void close(engine::Strategy& strategy);
  // Returns the files that the chief wrote, without checkpoints. Call it after close.
  std::vector<std::string> files() const;

 private:
  engine::Log log_;
  std::string log_file_, trace_file_;  // as the flags name them
  std::int64_t step_ = 0;              // last one that was reported
  std::optional<engine::EventLog> events_;
  std::optional<engine::Summary> summary_;
  std::optional<engine::Profile> profile_;
  std::optional<engine::WholeFile> trace_;
};

}  // namespace lockstep::tools
