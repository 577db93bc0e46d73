// SPDX-License-Identifier: MIT
#include "engine/base/log.h"

#include <fmt/chrono.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <thread>
#include <vector>

namespace lockstep::engine {
namespace log_test {

struct Lines {
  std::vector<std::pair<Log::Level, std::string>> all;
  Log::Sink sink() {
    return [this](Log::Level level, std::string_view line) { all.emplace_back(level, line); };
  }
};

TEST(Log, PutsTheSpeakerInFront) {
  Lines lines;
  const Log log("rank 2", Log::Level::kInfo, lines.sink());
  log.info("step {} of {}", 3, 4);
  log.as("rank 3").warning("late");
  log.as("").error("no speaker {}", "{}");
  ASSERT_EQ(lines.all.size(), 3u);
  EXPECT_EQ(lines.all[0].second, "rank 2: step 3 of 4");
  EXPECT_EQ(lines.all[0].first, Log::Level::kInfo);
  EXPECT_EQ(lines.all[1].second, "rank 3: late");
  EXPECT_EQ(lines.all[1].first, Log::Level::kWarning);
  EXPECT_EQ(lines.all[2].second, "no speaker {}");
  EXPECT_EQ(lines.all[2].first, Log::Level::kError);
}

TEST(Log, LeavesOutWhatIsBelowTheLeastLevel) {
  for (auto least :
       {Log::Level::kDebug, Log::Level::kInfo, Log::Level::kWarning, Log::Level::kError}) {
    Lines lines;
    const Log log("", least, lines.sink());
    log.debug("d");
    log.info("i");
    log.warning("w");
    log.error("e");
    EXPECT_EQ(lines.all.size(), 4 - std::size_t(least));
    for (const auto& [level, line] : lines.all) EXPECT_GE(level, least);
  }
}

TEST(Log, WritesLinesOfManyThreadsWhole) {
  Lines lines;
  const Log log("", Log::Level::kInfo, lines.sink());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([own = log.as(fmt::format("rank {}", t))] {
      for (int i = 0; i < 100; ++i) own.info("{}", std::string(50, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(lines.all.size(), 400u);
  for (const auto& [level, line] : lines.all) {
    EXPECT_EQ(line.size(), 58u);
    EXPECT_EQ(line.substr(6), ": " + std::string(50, 'x'));
  }
}

TEST(Log, DatesWarningsAloneAndHasNoColourWhereNoTerminalIs) {
  const std::time_t before = std::time(nullptr);
  testing::internal::CaptureStderr();
  Log("rank 1").warning("disk is full");
  Log().info("epoch 1");
  const std::string text = testing::internal::GetCapturedStderr();
  const auto expected = [](std::time_t now) {
    return fmt::format("{:%Y-%m-%d %H:%M:%S} warning: rank 1: disk is full\nepoch 1\n",
                       fmt::localtime(now));
  };
  EXPECT_THAT(text, testing::AnyOf(expected(before), expected(std::time(nullptr))));
}

}  // namespace log_test
}  // namespace lockstep::engine
