// SPDX-License-Identifier: MIT
#include "tools/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/quantity.h"

namespace lockstep::tools {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10;

std::string duration_text(double seconds) {
  const long whole = long(std::max(0.0, seconds) + 0.5);
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// Returns the metrics as text. `of`: "mean " or nothing.
std::string metrics(double loss, double accuracy, const char* of = "") {
  const std::string text = fmt::format("{}loss {:.4f}", of, loss);
  return std::isnan(accuracy) ? text : text + fmt::format(", {}accuracy {:.4f}", of, accuracy);
}

}  // namespace

Progress::Progress(bool visible) : visible_(visible), terminal_(isatty(STDERR_FILENO) != 0) {}

std::string Progress::line(const engine::StepReport& report) const {
  const double seconds = std::chrono::duration<double>(engine::Clock::now() - start_).count();
  const double done = double(report.step - first_step_);  // since `start_`, the first step's end
  const double left = double(report.steps - report.step - 1) * seconds / std::max(1.0, done);
  return fmt::format("step {}/{}  epoch {}  {:.0f} examples/s  loss {:.4f}  {} left",
                     report.step + 1, report.steps, report.epoch + 1, rate_, report.loss,
                     duration_text(left));
}

void Progress::begin() {
  begin_ = engine::Clock::now();
}

void Progress::step(const engine::StepReport& report) {
  if (!visible_) return;
  if (first_step_ < 0) {
    first_step_ = report.step;
    start_ = last_ = engine::Clock::now();
  }
  last_step_ = report.step;
  const double rate = report.examples_per_second;
  rate_ = rate_ == 0 ? rate : 0.9 * rate_ + 0.1 * rate;
  const auto now = engine::Clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  if (since < (terminal_ ? kRedrawSeconds : kLineSeconds)) return;
  last_ = now;
  if (terminal_) {
    std::fputs(fmt::format("\r\033[K{}", line(report)).c_str(), stderr);
    drawn_ = true;
  } else {
    std::fputs((line(report) + "\n").c_str(), stderr);
  }
  std::fflush(stderr);
}

void Progress::epoch(const engine::EpochReport& report) {
  epoch_end_ = last_step_ + 1;
  const std::string title = fmt::format(
      "epoch {}{}", report.number,
      !report.resumed        ? ""
      : report.examples == 0 ? ", continued"
                             : fmt::format(", continued (the last {} examples)", report.examples));
  const double rate = report.examples_per_second > 0 ? report.examples_per_second : rate_;
  say(report.examples == 0 ? title + ": finished"
                           : fmt::format("{}: {}, {:.0f} examples/s", title,
                                         metrics(report.loss, report.accuracy, "mean "), rate));
}

void Progress::evaluation(const engine::Evaluation& test, std::int64_t steps, std::int64_t epochs) {
  const std::string when = steps == epoch_end_ ? engine::count_text(std::uint64_t(epochs), "epoch")
                                               : engine::count_text(std::uint64_t(steps), "step");
  say(evaluation_text(test, when));
}

void Progress::steps(const engine::History& history) {
  const std::int64_t steps = history.steps - history.first_step;
  if (steps <= 0) return;
  const double seconds = std::chrono::duration<double>(engine::Clock::now() - begin_).count();
  say(fmt::format("{} in {}{}", engine::count_text(std::uint64_t(steps), "step"),
                  (seconds < 60 ? fmt::format("{:.1f} s", seconds) : duration_text(seconds)) +
                      (history.examples_per_second > 0
                           ? fmt::format("; the median step runs at {:.0f} examples/s",
                                         history.examples_per_second)
                           : ""),
                  history.times ? "\n" + history.times->describe() : ""));
}

std::string Progress::evaluation_text(const engine::Evaluation& test, const std::string& when) {
  return fmt::format("test after {}: {}", when, metrics(test.loss, test.accuracy)) +
         (std::isnan(test.top5) ? "" : fmt::format(", top-5 {:.4f}", test.top5)) +
         (std::isnan(test.auc) ? "" : fmt::format(", AUC {:.4f}", test.auc));
}

void Progress::erase() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::say(const std::string& text) {
  if (!visible_) return;
  erase();
  std::fputs((text + "\n").c_str(), stderr);
  std::fflush(stderr);
}

void Progress::close() {
  erase();
  std::fflush(stderr);
}

}  // namespace lockstep::tools
