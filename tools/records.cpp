// SPDX-License-Identifier: MIT
#include "tools/records.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "engine/base/version.h"
#include "engine/train/job_trace.h"

namespace lockstep::tools {

namespace {

// Returns the scalars that are numbers. NaN has no point in the summary and is null in a line. It
// stands for the accuracy of a loss without one, the top 5 of few classes, and the AUC of more than
// two classes.
std::vector<engine::Summary::Scalar> numbers_of(std::span<const engine::Summary::Scalar> scalars) {
  std::vector<engine::Summary::Scalar> numbers;
  std::ranges::copy_if(scalars, std::back_inserter(numbers),
                       [](const auto& scalar) { return !std::isnan(scalar.value); });
  return numbers;
}

constexpr std::int64_t kProfiled = 20;  // steps in a trace by default

}  // namespace

Records::Records(const TrainFlags& f, bool chief, const engine::Log& log)
    : log_(log), log_file_(f.files.log), trace_file_(f.files.profile) {
  if (!f.files.profile.empty()) profile_.emplace(f.files.profile_steps.value_or(kProfiled));
  if (!chief) return;
  if (!f.files.log.empty()) events_.emplace(f.files.log, log);
  if (!f.files.profile.empty()) trace_.emplace(f.files.profile);
  if (!f.files.summary.empty()) summary_.emplace(f.files.summary, log);
}

void Records::start(const TrainFlags& f, const engine::Strategy& strategy,
                    const std::string& optimizer, const std::string& data, std::int64_t done,
                    std::int64_t steps) {
  step_ = done;
  if (!events_) return;
  events_->write("start", {{"model", f.model},
                           {"data", data},
                           {"strategy", strategy.name()},
                           {"replicas", std::int64_t(strategy.membership().size)},
                           {"batch", std::uint64_t(f.data.global_batch)},
                           {"optimizer", optimizer},
                           {"seed", f.data.seed},
                           {"algorithm", strategy.algorithm()},
                           {"version", std::string(engine::version())},
                           {"first_step", done},
                           {"steps", steps}});
}

void Records::end(std::int64_t step, const std::string& reason) {
  if (events_) events_->write("end", {{"step", step}, {"reason", reason}});
}

void Records::step(const engine::StepReport& report) {
  const std::int64_t step = step_ = report.step + 1;  // steps done, as checkpoints count them
  if (events_) {
    events_->write("step", {{"step", step},
                            {"loss", report.loss},
                            {"accuracy", report.accuracy},
                            {"rate", report.rate},
                            {"examples_per_second", report.examples_per_second},
                            {"rank0_waited_ms", std::round(report.waited * 1e6) / 1e3}});
    if (report.loss_scale > 0) {
      events_->write("loss_scale", {{"step", step},
                                    {"loss_scale", report.loss_scale},
                                    {"skipped_steps", report.skipped_steps}});
    }
    if (const auto& t = report.traffic) {
      events_->write("traffic", {{"step", step},
                                 {"bytes_pulled", t->bytes_pulled},
                                 {"bytes_pushed", t->bytes_pushed},
                                 {"rows_pulled", t->rows_pulled},
                                 {"rows_pushed", t->rows_pushed}});
    }
  }
  if (!summary_) return;
  const engine::Summary::Scalar scalars[] = {
      {"train/loss", report.loss},
      {"train/rate", report.rate},
      {"train/examples_per_second", report.examples_per_second},
      {"train/rank0_waited_ms", report.waited * 1e3},
      {"train/accuracy", report.accuracy}};
  summary_->write(step, numbers_of(scalars));
  if (report.loss_scale == 0) return;
  const engine::Summary::Scalar scaled[] = {{"train/loss_scale", report.loss_scale},
                                            {"train/skipped_steps", double(report.skipped_steps)}};
  summary_->write(step, scaled);
}

// Keeps the points of an earlier run: a run without steps left begins after the last step.
void Records::evaluation(const engine::Evaluation& test, std::int64_t steps, std::int64_t epochs) {
  if (events_) {
    events_->write("evaluation", {{"step", steps},
                                  {"epoch", epochs},
                                  {"loss", test.loss},
                                  {"accuracy", test.accuracy},
                                  {"top5", test.top5},
                                  {"auc", test.auc}});
  }
  if (!summary_) return;
  summary_->begin(steps + 1);
  const engine::Summary::Scalar scalars[] = {{"test/loss", test.loss},
                                             {"test/accuracy", test.accuracy},
                                             {"test/top5", test.top5},
                                             {"test/auc", test.auc}};
  summary_->write(steps, numbers_of(scalars));
}

void Records::checkpoint(std::int64_t step) {
  if (events_) events_->write("checkpoint", {{"step", step}});
}

void Records::close(engine::Strategy& strategy) {
  if (!profile_) return;
  const std::string trace = engine::chrome_trace(strategy, *profile_);
  for (const auto& [rank, timeline] : profile_->timelines()) {
    if (timeline->left_out() == 0) continue;
    log_.warning("the trace has no room for {} spans of rank {}: take fewer --profile-steps",
                 timeline->left_out(), rank);
  }
  if (trace_) trace_->commit(trace);
}

std::vector<std::string> Records::files() const {
  std::vector<std::string> files;
  if (events_ && events_->whole()) files.push_back(log_file_);
  if (summary_ && summary_->whole()) files.push_back(summary_->path());
  if (trace_) files.push_back(trace_file_);
  return files;
}

}  // namespace lockstep::tools
