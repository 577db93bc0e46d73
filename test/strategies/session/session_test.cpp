// SPDX-License-Identifier: MIT
// Sessions start and end in one process without leaving anything behind, which the address
// sanitizer checks.
#include <gtest/gtest.h>

#include <cstdlib>
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

class Clusters : public testing::Test {
 protected:
  void TearDown() override { unsetenv("TF_CONFIG"); }
};

TEST_F(Clusters, MirroredTrainsAloneWithoutWaitingForOthers) {
  setenv("TF_CONFIG", R"({"cluster": {"worker": ["h1:2222", "h2:2222"]},
                          "task": {"type": "worker", "index": 0}})",
         1);
  strategies::Session session(0, nullptr, {.deadline = std::chrono::milliseconds(100)});
  auto strategy = strategies::mirrored(session, {.replicas = 2, .device = "reference"});
  train(strategy, {}, nullptr);
  EXPECT_EQ(strategy.membership().size, 2);
}

TEST_F(Clusters, ThatCannotBeReadAreNoJobOfOneProcess) {
  for (const char* text : {"{\"cluster\": 7}", R"({"cluster": {"ps": ["h0:1"], "worker": ["h1:1"]},
                                                   "task": {"type": "worker", "index": 0}})"}) {
    setenv("TF_CONFIG", text, 1);
    strategies::Session session(0, nullptr);
    EXPECT_THROW(strategies::collective_all_reduce(session), engine::Error) << text;
    EXPECT_THROW(strategies::make_strategy("collective_all_reduce", session), engine::Error);
  }
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
