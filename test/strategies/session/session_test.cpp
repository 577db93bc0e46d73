// SPDX-License-Identifier: MIT
// Sessions start and end in one process without leaving anything behind, which the address
// sanitizer checks.
#include <gtest/gtest.h>

#include <filesystem>

#include "strategies/session/factories.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace session_test {

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::size_t(std::distance(begin(files), end(files)));
}

TEST(Session, ManyOfThemLeaveNothingOpen) {
  std::size_t before = 0;
  for (int i = 0; i < 20; ++i) {
    strategies::Session session(0, nullptr, {.log = engine::Log("", engine::Log::Level::kError)});
    auto strategy = strategies::collective_all_reduce(
        session, {.replicas = 2, .device = "reference", .threads = 1});
    Job job;
    job.steps = 2;
    train(strategy, job, nullptr);
    if (i == 0) before = open_files();
    if (i == 19) {
      EXPECT_EQ(open_files(), before);
    }
  }
}

TEST(Session, TwoAtOnceTrainApart) {
  strategies::Session one(0, nullptr), two(0, nullptr);
  auto first = strategies::mirrored(one, {.replicas = 2, .device = "reference", .threads = 1});
  auto second = strategies::mirrored(two, {.replicas = 3, .device = "reference", .threads = 1});
  Outcome a, b;
  train(first, {}, &a);
  train(second, {}, &b);
  EXPECT_LT(difference(weights(first, 0), weights(second, 0)), 1e-10);
}

TEST(Session, AnUnknownDeviceOrStrategyIsToldWhatThereIs) {
  strategies::Session session(0, nullptr);
  for (auto make : {+[](strategies::Session& s) { (void)s.device("cuda:0"); },
                    +[](strategies::Session& s) { (void)strategies::make_strategy("tpu", s); }}) {
    try {
      make(session);
      FAIL() << "it was accepted";
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      const std::string text = error.what();
      EXPECT_TRUE(text.find("cpu:0") != std::string::npos ||
                  text.find("mirrored") != std::string::npos)
          << text;
    }
  }
}

}  // namespace session_test
}  // namespace lockstep::test
