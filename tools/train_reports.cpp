// SPDX-License-Identifier: MIT
#include "tools/train_reports.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/brief.h"
#include "engine/base/quantity.h"
#include "engine/checkpoint/checkpoint.h"
#include "tools/signals.h"
#include "tools/standard_streams.h"
#include "tools/train_result.h"

namespace lockstep::tools {
namespace {

// Least time between two lines about checkpoints, unless all are wanted.
constexpr std::chrono::seconds kBetweenLines{1};

bool has_checkpoints(const std::string& folder) {
  const auto storage = engine::posix_storage();
  try {
    return !engine::Checkpoints(*storage, folder, 1, engine::Log("", engine::Log::Level::kError))
                .steps()
                .empty();
  } catch (const engine::Error&) {
    return false;  // `fit` reports the error
  }
}

// Returns the first two lines: the replicas and the algorithm.
std::string in_brief(const std::string& explained) {
  const std::size_t end = explained.find('\n', explained.find('\n') + 1);
  return end == std::string::npos ? explained : explained.substr(0, end) + "   [-v for details]";
}

}  // namespace

TrainReports::TrainReports(const TrainFlags& f, const engine::data::Sets& sets,
                           const engine::Strategy& strategy, Records& records,
                           std::string optimizer, const engine::Log& log)
    : f_(f),
      sets_(sets),
      strategy_(strategy),
      records_(records),
      log_(log),
      optimizer_(std::move(optimizer)),
      fresh_(!f.files.checkpoints.empty() && !has_checkpoints(f.files.checkpoints)),
      chief_(strategy.membership().chief),
      progress_(chief_ && !f.verbosity.quiet),
      results_(chief_) {}

void TrainReports::listen(engine::FitOptions& fit) {
  fit.profile = records_.profile();
  fit.on_open = [this](std::int64_t done, std::int64_t steps) { begin(done, steps); };
  fit.on_step = [this](const engine::StepReport& report) {
    progress_.step(report);
    records_.step(report);
  };
  fit.on_epoch = [this](const engine::EpochReport& report) { progress_.epoch(report); };
  fit.on_evaluation = [this](const engine::Evaluation& test, std::int64_t steps,
                             std::int64_t epochs) {
    progress_.evaluation(test, steps, epochs);
    records_.evaluation(test, steps, epochs);
  };
  fit.on_checkpoint = [this](std::int64_t step) { saved(step); };
}

void TrainReports::begin(std::int64_t done, std::int64_t steps) {
  progress_.begin();
  for (const std::string& warning : sets_.warnings) log_.warning("{}", warning);
  progress_.say(fmt::format(
      "{} on {}{}", f_.model, sets_.train->describe(),
      fresh_ ? fmt::format("; {} holds no checkpoint yet", engine::brief(f_.files.checkpoints))
             : ""));
  fresh_ = false;  // after a retry the run begins again
  if (!sets_.test && f_.data.data != "random") {
    progress_.say(fmt::format(
        "there will be no test accuracy, because {} has no test data: {}", f_.data.data,
        sets_.test_files.empty() ? "name a file of them with --test" : sets_.test_files));
  }
  records_.start(f_, strategy_, optimizer_, sets_.train->describe(), done, steps);
  progress_.say(f_.verbosity.verbose ? strategy_.explain() : in_brief(strategy_.explain()));
  if (f_.placement) results_.say(strategy_.placement());
}

void TrainReports::saved(std::int64_t step) {
  records_.checkpoint(step);
  saved_ = step;
  const auto now = engine::Clock::now();
  if (!f_.verbosity.verbose && now < next_line_) return;
  next_line_ = now + kBetweenLines;
  tell_checkpoint();
}

void TrainReports::tell_checkpoint() {
  told_ = saved_;
  const std::filesystem::path folder = f_.files.checkpoints;
  progress_.say("wrote " + (folder / engine::checkpoint_name(saved_)).string());
}

void TrainReports::end(const engine::History& history, const std::vector<std::string>& memory,
                       engine::Strategy& strategy) {
  progress_.close();
  if (saved_ != told_) tell_checkpoint();
  progress_.steps(history);
  if (history.traffic) progress_.say(traffic_text(*history.traffic, history.traffic_steps));
  for (const std::string& line : memory) progress_.say(line);
  records_.close(strategy);
  const std::string end = history.interrupted == 0 ? "done" : signal_name(history.interrupted);
  records_.end(history.steps, end);
  for (const std::string& file : records_.files()) f_.verbosity.written(file);
  if (history.interrupted != 0) {
    const int rank = history.interrupted_rank;
    const std::string stopped =
        fmt::format("stopped by {}{} after step {}", end,
                    rank == 0 ? "" : fmt::format(" to rank {}", rank), history.steps);
    results_.say(f_.files.checkpoints.empty()
                     ? stopped + ", and nothing was saved; --checkpoints names a folder"
                     : fmt::format("{}, which was saved in {}; the same command continues there",
                                   stopped, f_.files.checkpoints));
  }
  if (chief_) print_result(history);
}

void TrainReports::print_result(const engine::History& history) const {
  if (f_.json) {
    print(train_result(f_, strategy_, history).dump() + "\n");
  } else if (f_.verbosity.quiet && history.interrupted == 0) {
    const std::string steps = engine::count_text(std::uint64_t(history.steps), "step");
    if (history.test) {
      print(Progress::evaluation_text(*history.test, steps) + "\n");
    } else if (history.steps > history.first_step) {
      print(fmt::format("loss of step {}: {:.4f}\n", history.steps, history.loss));
    }
  }
}

}  // namespace lockstep::tools
