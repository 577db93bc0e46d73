// SPDX-License-Identifier: MIT
// lockstep train --task evaluator, or TF_CONFIG of an evaluator: evaluates each checkpoint of a
// folder once, in this process, while other processes train and save there. It takes model and data
// from the checkpoints; --data, --test and --examples replace theirs. It may be started before,
// during or after the run. It ends with the run's last checkpoint, or after a signal and the
// evaluation in progress.
//
// FOLDER/evaluations.jsonl has a line for each checkpoint: "evaluation" (step, epoch, loss,
// accuracy, top5, auc), or "skipped" (step, reason) for one that is damaged, or that the run
// removed first. An evaluator that is started again leaves out these steps; one that is killed
// within an evaluation repeats that one. --log and --summary get the same numbers before that line.
// Only one evaluator at a time may watch a folder.
#pragma once
#include "tools/command.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

// Returns whether this process is to be an evaluator.
bool is_evaluator(const TrainFlags& f);
// Evaluates until the last checkpoint; returns the exit code. Throws Error(kIo) if none comes for a
// day.
int run_evaluator(const TrainFlags& f, const Program& program);

}  // namespace lockstep::tools
