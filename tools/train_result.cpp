// SPDX-License-Identifier: MIT
#include "tools/train_result.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/quantity.h"

namespace lockstep::tools {
namespace {

// Returns milliseconds; more digits than these are not measured.
double ms(double seconds) {
  return std::round(seconds * 1e6) / 1e3;
}

// Returns the times in milliseconds.
nlohmann::json to_json(const engine::StepTimes& times) {
  nlohmann::json ranks = nlohmann::json::array();
  for (const engine::RankTimes& rank : times.ranks) {
    ranks.push_back({{"step_p10_ms", ms(rank.step_p10)},
                     {"step_ms", ms(rank.step)},
                     {"step_p90_ms", ms(rank.step_p90)},
                     {"step_p99_ms", ms(rank.step_p99)},
                     {"step_most_ms", ms(rank.step_most)},
                     {"work_ms", ms(rank.work)},
                     {"waited_ms", ms(rank.waited)},
                     {"messages_ms", ms(rank.messages)}});
  }
  const auto hidden = times.hidden_percent();
  const bool alone = times.ranks.size() == 1;
  return {{"slowest_rank", times.slowest},
          {"waited_for_slowest_ms", ms(times.waited_for_slowest)},
          {"late_in_turn_ms", ms(times.late_in_turn)},
          {"comm_exposed_ms", alone ? nlohmann::json() : nlohmann::json(ms(times.exposed))},
          {"comm_hidden_percent", hidden ? nlohmann::json(*hidden) : nlohmann::json()},
          {"ranks", std::move(ranks)}};
}

// Returns the traffic with servers of this process's replicas in `steps` steps.
nlohmann::json to_json(const engine::Traffic& traffic, std::int64_t steps) {
  const auto per_step = [&](std::uint64_t all) { return double(all) / double(steps); };
  return {{"steps", steps},
          {"bytes_pulled", traffic.bytes_pulled},
          {"bytes_pushed", traffic.bytes_pushed},
          {"rows_pulled", traffic.rows_pulled},
          {"rows_pushed", traffic.rows_pushed},
          {"bytes_per_step", per_step(traffic.bytes_pulled + traffic.bytes_pushed)},
          {"rows_per_step", per_step(traffic.rows_pulled + traffic.rows_pushed)}};
}

}  // namespace

std::string traffic_text(const engine::Traffic& traffic, std::int64_t steps) {
  const auto bytes = [&](std::uint64_t all) {
    return engine::bytes_text(double(all) / double(steps));
  };
  const auto rows = [&](std::uint64_t all) { return double(all) / double(steps); };
  std::string text = fmt::format("a worker pulled {} and pushed {} per step",
                                 bytes(traffic.bytes_pulled), bytes(traffic.bytes_pushed));
  if (traffic.rows_pulled > 0)
    text += fmt::format(", of which {:.1f} and {:.1f} rows of tables", rows(traffic.rows_pulled),
                        rows(traffic.rows_pushed));
  return text;
}

std::string result_help() {
  return R"(Fields of --json:
  model, strategy, batch, replicas
  steps, first_step    all steps, those before a restart included; the step at which this run
                       continued, absent if it is 0
  seconds              this run's steps, without evaluation and checkpoints
  examples_per_second  median of this run's steps without its first ten; null if none was left
  loss                 of the last step and its global batch; with asynchronous servers of worker
                       0's batch
  loss_scale           factor of the last step's loss; null if losses are not scaled
  skipped_steps        steps whose gradients were not finite
  test_accuracy, test_top5, test_auc, test_loss, test_step
                       the last evaluation, after test_step steps; null or absent without one
  algorithm, reason    the all-reduce, by sizes as --algorithm takes them if buckets differ
  interrupted          the signal that ended the run; absent if none did
  traffic              with servers: bytes and rows pulled and pushed, in all and per step
  step_times           milliseconds of this run's steps: ranks (step_ms is the median, step_p10_ms,
                       step_p90_ms, step_p99_ms, step_most_ms, work_ms, waited_ms, messages_ms),
                       slowest_rank, waited_for_slowest_ms, late_in_turn_ms, comm_exposed_ms (null
                       for one replica), comm_hidden_percent (null on one host)
Events of --log, an object per line; steps count from 1:
  start                model, data, strategy, replicas, batch, optimizer, seed, algorithm, version,
                       first_step, steps
  step                 step, loss, accuracy, rate, examples_per_second, rank0_waited_ms
  evaluation           step, epoch, loss, accuracy, top5, auc
  checkpoint, end      step; of end also reason: done, a signal's name, or an error's text
  loss_scale, traffic  with scaled losses; with servers
)";
}

nlohmann::json train_result(const TrainFlags& f, const engine::Strategy& strategy,
                            const engine::History& history) {
  nlohmann::json object{{"model", f.model},
                        {"strategy", strategy.name()},
                        {"replicas", strategy.membership().size},
                        {"batch", f.data.global_batch},
                        {"steps", history.steps},
                        {"seconds", history.seconds},
                        {"examples_per_second", nullptr},
                        {"loss", nullptr},
                        {"loss_scale", nullptr},
                        {"skipped_steps", history.skipped_steps},
                        {"test_accuracy", nullptr},
                        {"algorithm", strategy.algorithm()},
                        {"reason", strategy.reason()}};
  if (history.steps > history.first_step) {  // otherwise nothing was left to train
    object["examples_per_second"] = history.examples_per_second;
    object["loss"] = history.loss;
    if (history.loss_scale > 0) object["loss_scale"] = history.loss_scale;
  }
  if (history.test) {
    object["test_accuracy"] = history.test->accuracy;  // null if NaN
    object["test_top5"] = history.test->top5;          // null if NaN
    object["test_auc"] = history.test->auc;            // null if NaN
    object["test_loss"] = history.test->loss;
    object["test_step"] = history.test_step;
  }
  if (history.traffic) object["traffic"] = to_json(*history.traffic, history.traffic_steps);
  if (history.times) object["step_times"] = to_json(*history.times);
  if (history.first_step > 0) object["first_step"] = history.first_step;
  if (history.interrupted != 0) object["interrupted"] = history.interrupted;
  return object;
}

}  // namespace lockstep::tools
