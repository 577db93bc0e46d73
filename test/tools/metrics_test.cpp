// SPDX-License-Identifier: MIT
// Tests the metrics of a run in text and JSON, with a loss that counts correct predictions and with
// one that does not (NaN).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "test/engine/checkpoint/scenario.h"
#include "tools/progress.h"
#include "tools/records.h"

namespace lockstep::test {
namespace metrics_test {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string lines(double accuracy) {
  tools::Progress progress(true);
  testing::internal::CaptureStderr();
  engine::StepReport report;
  progress.step(report);
  progress.epoch({.number = 1,
                  .loss = 0.625,
                  .accuracy = accuracy + 0.0625,
                  .examples = 8,
                  .examples_per_second = 100});
  progress.epoch({.number = 2,
                  .resumed = true,
                  .loss = 0.5,
                  .accuracy = accuracy,
                  .examples = 8,
                  .examples_per_second = 99.6});
  ++report.step;
  progress.evaluation({0.25, accuracy, 10}, report.step, 1);
  progress.evaluation({0.125, accuracy, 10}, report.step + 1, 1);
  return testing::internal::GetCapturedStderr();
}

TEST(MetricsOfARun, LinesNameAnAccuracyWhereThereIsOne) {
  EXPECT_EQ(lines(0.75),
            "epoch 1: mean loss 0.6250, mean accuracy 0.8125, 100 examples/s\n"
            "epoch 2, continued (the last 8 examples): mean loss 0.5000, mean accuracy 0.7500, 100 "
            "examples/s\n"
            "test after 1 epoch: loss 0.2500, accuracy 0.7500\n"
            "test after 2 steps: loss 0.1250, accuracy 0.7500\n");
  EXPECT_EQ(lines(kNone),
            "epoch 1: mean loss 0.6250, 100 examples/s\n"
            "epoch 2, continued (the last 8 examples): mean loss 0.5000, 100 examples/s\n"
            "test after 1 epoch: loss 0.2500\n"
            "test after 2 steps: loss 0.1250\n");
}

TEST(MetricsOfARun, TheLogHasNullAndTheSummaryNothingWhereThereIsNone) {
  for (const double accuracy : {0.75, kNone}) {
    const TemporaryFolder folder;
    tools::TrainFlags flags;
    flags.files.log = folder.path() + "/log";
    flags.files.summary = folder.path() + "/summary";
    {
      tools::Records records(flags, true, engine::Log("", engine::Log::Level::kError));
      engine::StepReport report;
      report.accuracy = accuracy;
      records.step(report);
      records.evaluation({0.25, accuracy, 10}, 1, 1);
    }
    std::istringstream log(content(flags.files.log));
    std::string line;
    int events = 0;
    for (; std::getline(log, line); ++events) {
      const auto event = nlohmann::json::parse(line);
      EXPECT_TRUE(event.contains("accuracy")) << line;
      EXPECT_EQ(event["accuracy"].is_null(), std::isnan(accuracy)) << line;
    }
    EXPECT_EQ(events, 2);
    const auto file = std::filesystem::directory_iterator(flags.files.summary)->path();
    const std::string summary = content(file.string());
    for (const char* tag : {"train/loss", "train/rate", "test/loss"})
      EXPECT_NE(summary.find(tag), std::string::npos) << tag;
    for (const char* tag : {"train/accuracy", "test/accuracy"})
      EXPECT_EQ(summary.find(tag) == std::string::npos, std::isnan(accuracy)) << tag;
  }
}

}  // namespace metrics_test
}  // namespace lockstep::test
