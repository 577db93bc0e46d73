// SPDX-License-Identifier: MIT
// Checkpoints by time fall between steps, on the same step for all replicas, and change no bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/checkpoint/checkpoint.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace timed_saves_test {

namespace fs = std::filesystem;

class TimedSaves : public testing::Test {
 protected:
  TimedSaves() {
    const fs::path memory = "/dev/shm";  // saves cost least there
    const fs::path top = fs::exists(memory) ? memory : fs::temp_directory_path();
    std::string name = (top / "lockstep-timed-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TimedSaves() override { fs::remove_all(folder_); }
  // Verifies the remaining checkpoints, at most three, removes them, and returns their steps.
  std::vector<std::int64_t> steps() {
    const auto storage = engine::posix_storage();
    engine::Checkpoints checkpoints(*storage, folder_, 1, engine::Log());
    const std::vector<std::int64_t> steps = checkpoints.steps();
    for (const std::int64_t step : steps) EXPECT_NO_THROW(checkpoints.verify(step));
    fs::remove_all(folder_);
    return steps;
  }
  std::string folder_;
};

TEST_F(TimedSaves, TheStepsBetweenThemAreThoseOfARunThatSavesNothing) {
  const auto train = [](const Job& job, const std::vector<int>& host) {
    return host.empty() ? train_mirrored(job, replicas(2))
                        : train_collective(job, replicas(2), host);
  };
  for (const std::vector<int>& host : {std::vector<int>{}, {0, 0}, {0, 1}}) {
    Job job;
    const Outcome plain = train(job, host);
    job.checkpoints = folder_;
    job.every_seconds = 1e-9;
    const Outcome saved = train(job, host);
    EXPECT_EQ(saved.weights, plain.weights);
    EXPECT_EQ(saved.losses, plain.losses);
    EXPECT_EQ(saved.history.steps, job.steps);
    EXPECT_EQ(saved.history.interrupted, 0);
    const std::vector<std::int64_t> found = steps();
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found.back(), job.steps);
    const auto within_epoch = [](std::int64_t step) { return step % 4 != 0; };  // 4 per epoch
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), within_epoch));
  }
}

TEST_F(TimedSaves, BeforeTheTimeIsOverThereIsOnlyTheOneAtTheEnd) {
  Job job;
  job.checkpoints = folder_;
  job.every_seconds = 3600;
  train_mirrored(job, replicas(2));
  EXPECT_EQ(steps(), std::vector{job.steps});
}

// The vote of a step counts one step later, when another vote is already under way.
TEST_F(TimedSaves, AnIntervalHasOneCheckpoint) {
  Job job;
  job.checkpoints = folder_;
  job.every_seconds = 0.5;
  job.on_step = [](const engine::StepReport& report) {
    if (report.step == 3) std::this_thread::sleep_for(std::chrono::milliseconds(600));
  };
  train_mirrored(job, replicas(2));
  EXPECT_EQ(steps().size(), 2u);  // one by time, one at the end
}

}  // namespace timed_saves_test
}  // namespace lockstep::test
