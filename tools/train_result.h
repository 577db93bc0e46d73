// SPDX-License-Identifier: MIT
// The result of a run of `lockstep train`, as a JSON object (--json) and as text.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/train/trainer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

nlohmann::json train_result(const TrainFlags& f, const engine::Strategy& strategy,
                            const engine::History& history);
// The object has these fields:
//   model, strategy, batch   the choices of the run; batch is global
//   replicas                 replicas of the whole job
//   steps, first_step        all steps, those before a restart included; the step at which this run
//                            continued, absent if it is 0
//   seconds                  this run's steps, without evaluation and checkpoints
//   images_per_second        examples per second: median over this run's steps without its first
//                            ten; null if no step was left to train
//   loss                     the last step's loss over its global batch; with asynchronous servers
//                            over worker 0's batch; null if no step was left to train
//   loss_scale               the last step's factor of the loss; null if losses are not scaled
//   skipped_steps            steps of the whole run that were skipped because of gradients that are
//                            not finite
//   test_accuracy, test_top5, test_auc, test_loss, test_step
//                            the last evaluation, after test_step steps. test_accuracy is null, and
//                            the others are absent, without one. The first two are null if the loss
//                            counts no right answers, and test_top5 also for five classes or fewer.
//                            test_auc is null unless there are two classes.
//   algorithm, reason        the all-reduce, by sizes as --algorithm takes them if buckets differ;
//                            none for one replica
//   interrupted              the signal that ended the run, sent to any process; absent if none did
//   traffic                  with servers, the chief's workers together: steps, bytes and rows (of
//                            tables) pulled and pushed, bytes_per_step, rows_per_step
//   step_times               this run's steps, in milliseconds, as engine/report/step_times.h
//                            defines them. `ranks` has step_ms (median), step_p10_ms, step_p90_ms,
//                            step_p99_ms, step_most_ms, work_ms, waited_ms and messages_ms of each.
//                            For the job: slowest_rank, waited_for_slowest_ms, late_in_turn_ms,
//                            comm_exposed_ms (null for one replica) and comm_hidden_percent (null
//                            on one host).

// Returns "a worker pulled 1 MiB and pushed 2 MiB per step". `steps`: the number of steps that
// `traffic` covers.
std::string traffic_text(const engine::Traffic& traffic, std::int64_t steps);

}  // namespace lockstep::tools
