// SPDX-License-Identifier: MIT
// A server dies and may restart without its variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <thread>

#include "test/strategies/parameter_server/worker/followers_fixture.h"

namespace lockstep::test {
namespace server_watch_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Code;
using testing::HasSubstr;

namespace fs = std::filesystem;

// A server dies when `step` is reported and restarts empty a moment later.
class ServerDies : public FollowersTest {
 protected:
  Job with_death(Job job, std::int64_t step, bool comes_back = true) {
    job.on_step = [=, this](const engine::StepReport& report) {
      if (report.step < step || died_.exchange(true)) return;
      servers_.kill(1);
      if (!comes_back) return;
      back_ = std::async(std::launch::async, [this] {
        std::this_thread::sleep_for(50ms);
        servers_.start(1);
      });
    };
    return job;
  }
  Job saving(Job job) {
    job.checkpoints = folder_;
    job.every = 10;
    return job;
  }
  fs::path newest_checkpoint() const {
    fs::path newest;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.is_directory() && entry.path().extension().empty())
        newest = std::max(newest, entry.path());
    EXPECT_FALSE(newest.empty()) << "no checkpoint was written yet";
    return newest;
  }
  std::atomic<bool> died_ = false;
  std::future<void> back_;
};

TEST_F(ServerDies, AndIsGivenTheLastCheckpoint) {
  workers_ = 2;
  auto one = start(1, saving(job(200)));
  const End chief = process(0, saving(with_death(job(200), 25)));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_FALSE(one.get().error);
  EXPECT_EQ(chief.history.steps, 200);
  EXPECT_THAT(chief.said, HasSubstr("was given the checkpoint of step"));
  EXPECT_TRUE(died_);
  for (const double weight : chief.weights) ASSERT_TRUE(std::isfinite(weight));
}

TEST_F(ServerDies, WithoutACheckpointTheRunEnds) {
  workers_ = 1;
  const End chief = process(0, with_death(job(100'000), 5));
  ASSERT_TRUE(chief.error);
  EXPECT_EQ(chief.error->code(), Code::kPeerLost);
  EXPECT_THAT(chief.error->what(), HasSubstr("came back without its variables"));
}

TEST_F(ServerDies, AndDoesNotComeBackWithinTheDeadline) {
  workers_ = 1;
  deadline_ = 500ms;
  const auto begin = Clock::now();
  const End chief = process(0, saving(with_death(job(100'000), 25, false)));
  ASSERT_TRUE(chief.error);
  EXPECT_EQ(chief.error->code(), Code::kUnavailable);
  EXPECT_THAT(chief.error->what(), HasSubstr("server 1"));
  EXPECT_LT(Clock::now() - begin, 20s);
}

TEST_F(ServerDies, AndSynchronousTrainingGoesOnAsAWhole) {
  synchronous_ = true;
  workers_ = 2;
  Job whole = saving(job(60));
  whole.retries = 1;
  auto one = start(1, saving(job(60)));
  const End chief = process(0, with_death(whole, 25));
  EXPECT_FALSE(chief.error) << chief.error->what();
  const End follower = one.get();
  EXPECT_FALSE(follower.error) << follower.error->what();
  EXPECT_EQ(chief.history.restores, 1);
  const Outcome mirrored = train_mirrored(job(60), replicas(2));
  EXPECT_LT(difference(chief.weights, mirrored.weights[0]), 1e-12);
}

// A restarted server gets an older checkpoint if the newest is unreadable.
TEST_F(ServerDies, AndIsGivenAnOlderCheckpointWhereTheLastIsDamaged) {
  workers_ = 1;
  Job job = saving(with_death(FollowersTest::job(200), 25));
  job.on_step = [this, die = job.on_step](const engine::StepReport& report) {
    if (report.step >= 25 && !died_)
      for (const auto& file : fs::directory_iterator(newest_checkpoint()))
        if (file.path().extension() == ".safetensors") fs::resize_file(file, 10);
    die(report);
  };
  const End chief = process(0, job);
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_THAT(chief.said, HasSubstr("was given the checkpoint of step 10;"));
}

}  // namespace server_watch_test
}  // namespace lockstep::test
