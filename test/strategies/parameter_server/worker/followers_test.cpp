// SPDX-License-Identifier: MIT
// A chief and its followers make the steps together, also after one of them dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "test/strategies/parameter_server/worker/followers_fixture.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace followers_test {

using namespace std::chrono_literals;
using namespace strategies;
using engine::Clock;
using engine::Code;
using engine::Error;
using testing::HasSubstr;

TEST_F(FollowersTest, MakeTheStepsThatTheyAreGiven) {
  auto one = start(1, job(300)), two = start(2, job(300));
  const End chief = process(0, slow(job(300)));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 300);
  for (auto* follower : {&one, &two}) {
    const End end = follower->get();
    EXPECT_FALSE(end.error) << end.error->what();
    EXPECT_GT(end.history.steps, 0);
  }
  EXPECT_EQ(chief.lost, 0);
}

// The chief waits for a late follower, even if it could make all steps in the meantime.
TEST_F(FollowersTest, OneThatComesAMomentLaterHasItsPart) {
  workers_ = 2;
  auto chief = start(0, waiting(job(20)));
  std::this_thread::sleep_for(100ms);  // long enough for a step
  EXPECT_EQ(finished_[0], 0);
  const End one = process(1, job(20));
  EXPECT_FALSE(one.error) << one.error->what();
  EXPECT_GT(one.history.steps, 0);
  const End end = chief.get();
  EXPECT_EQ(end.history.steps, 20);
  EXPECT_THAT(end.said, testing::Not(HasSubstr("are not there")));
}

TEST_F(FollowersTest, WhoNeverComesIsNamed) {
  heartbeat_timeout_ = 100ms;
  const End chief = process(0, job(20));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_THAT(chief.said, HasSubstr("workers [1, 2] are not there after 0.1 s"));
}

// A process that is silent for longer than the heartbeat timeout attaches again.
TEST_F(FollowersTest, OneThatWasSilentForAWhileGoesOn) {
  for (const bool synchronous : {false, true}) {
    heartbeat_timeout_ = 300ms;
    workers_ = 2;
    synchronous_ = synchronous;
    std::promise<void> trains;
    const std::int64_t steps = synchronous ? 300 : 2000;
    auto one = start(1, job(steps));
    Job leads = job(steps);
    leads.on_step = [&, reports = 0](const auto&) mutable {
      std::this_thread::sleep_for(2ms);
      if (++reports == 10) trains.set_value();
    };
    auto chief = start(0, leads);
    trains.get_future().wait();
    others_go_on_ = false, cut_ = true;
    EXPECT_TRUE(await([this] { return others_go_on_.load(); }));
    cut_ = false;
    const End follower = one.get(), end = chief.get();
    EXPECT_FALSE(follower.error) << follower.error->what();
    EXPECT_THAT(follower.said, HasSubstr("it is there again"));
    EXPECT_FALSE(end.error) << end.error->what();
    EXPECT_EQ(end.history.steps, steps);
    EXPECT_GE(end.lost, 1);
  }
}

// With backup workers the run may end while one makes a step that is not needed.
TEST_F(FollowersTest, ASlowOneAtTheEndIsNoError) {
  synchronous_ = true;
  aggregate_ = 2;
  auto one = start(1, job(40));
  pause_of_two_ = 6s;
  auto two = start(2, job(40));
  const End chief = process(0, job(40));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 40);
  EXPECT_FALSE(one.get().error);
  const End last = two.get();
  EXPECT_FALSE(last.error) << last.error->what();
}

// The servers then belong to another job and do not hear that this one failed.
TEST_F(FollowersTest, AChiefWhoseServersAnotherOpenedEndsAndSaysSo) {
  workers_ = 1;
  std::promise<void> trains;
  Job first = slow(job(100'000));
  first.on_step = [&, pause = first.on_step](const auto& report) {
    pause(report);
    if (report.step == 10) trains.set_value();
  };
  auto one = start(0, first);
  trains.get_future().wait();
  const End two = process(0, slow(job(200)));
  EXPECT_FALSE(two.error) << two.error->what();
  const End end = one.get();
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->code(), Code::kPeerLost);
  EXPECT_THAT(end.error->what(), HasSubstr("another chief has opened container \"train\""));
}

TEST_F(FollowersTest, TogetherAreReplicasWhereTheyAreSynchronous) {
  synchronous_ = true;
  auto one = start(1, job(30)), two = start(2, job(30));
  const End chief = process(0, job(30));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_FALSE(one.get().error);
  EXPECT_FALSE(two.get().error);
  const Outcome mirrored = train_mirrored(job(30), replicas(3));
  EXPECT_LT(difference(chief.weights, mirrored.weights[0]), 1e-12);
}

TEST_F(FollowersTest, StepsOfALostOneAreMadeByOthers) {
  heartbeat_timeout_ = 300ms;
  workers_ = 2;
  auto one = start(1, job(300), 5);
  const End chief = process(0, slow(job(300)));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 300);
  EXPECT_TRUE(one.get().error);
  EXPECT_EQ(chief.lost, 1);
  EXPECT_THAT(chief.said, HasSubstr("its steps go to others"));
}

// A restarted worker computes partly pushed gradients again from newer weights.
TEST_F(FollowersTest, OneThatDiesPushingComesBackAndAllStepsAreMade) {
  synchronous_ = true;
  workers_ = 2;
  auto chief = start(0, job(40));
  EXPECT_TRUE(process(1, job(40), 7).error);
  EXPECT_TRUE(process(1, job(40), 9).error);
  EXPECT_FALSE(process(1, job(40)).error);
  const End end = chief.get();
  EXPECT_FALSE(end.error) << end.error->what();
  EXPECT_EQ(end.history.steps, 40);
  const Outcome mirrored = train_mirrored(job(40), replicas(2));
  EXPECT_LT(relative(end.weights, mirrored.weights[0]), 0.05);
}

TEST_F(FollowersTest, OneThatComesBackMakesTheSameSteps) {
  where_ = Dies::kInForward;
  synchronous_ = true;
  workers_ = 2;
  auto chief = start(0, job(40));
  EXPECT_TRUE(process(1, job(40), 7).error);
  EXPECT_TRUE(process(1, job(40), 9).error);
  const End third = process(1, job(40));
  EXPECT_FALSE(third.error) << third.error->what();
  const End end = chief.get();
  EXPECT_FALSE(end.error) << end.error->what();
  const Outcome mirrored = train_mirrored(job(40), replicas(2));
  EXPECT_LT(difference(end.weights, mirrored.weights[0]), 1e-12);
  EXPECT_EQ(end.lost, 2);
}

TEST_F(FollowersTest, WithoutOneThatIsNeededTheRunEndsWithItsNumber) {
  synchronous_ = true;
  deadline_ = 3s;  // enough for the other to attach
  auto one = start(1, job(30));
  const auto begin = Clock::now();
  const End chief = process(0, job(30));
  EXPECT_LT(Clock::now() - begin, 20s);
  ASSERT_TRUE(chief.error);
  EXPECT_EQ(chief.error->code(), Code::kPeerLost);
  EXPECT_THAT(chief.error->what(), HasSubstr("workers [2] are not there"));
  EXPECT_TRUE(one.get().error);
}

TEST_F(FollowersTest, WithoutTheChiefAllEndWithinTheDeadline) {
  deadline_ = 1s;
  slam_ = true;
  auto one = start(1, job(100'000)), two = start(2, job(100'000));
  const End chief = process(0, slow(job(100'000)), 20);
  EXPECT_TRUE(chief.error);
  const auto begin = Clock::now();
  EXPECT_TRUE(one.get().error);
  EXPECT_TRUE(two.get().error);
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST_F(FollowersTest, OneMayDieWhereTheFirstOfTheGradientsMakeAnUpdate) {
  synchronous_ = true;
  aggregate_ = 2;
  heartbeat_timeout_ = 300ms;
  deadline_ = 60s;
  auto one = start(1, job(400)), two = start(2, job(400), 5);
  const auto begin = Clock::now();
  const End chief = process(0, slow(job(400)));
  EXPECT_LT(Clock::now() - begin, deadline_ / 2) << "not by a deadline";
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 400);
  EXPECT_EQ(chief.lost, 1);
  EXPECT_FALSE(one.get().error);
  EXPECT_TRUE(two.get().error);
}

TEST_F(FollowersTest, HearWhenTheChiefFails) {
  auto one = start(1, job(100'000)), two = start(2, job(100'000));
  const auto begin = Clock::now();
  const End chief = process(0, slow(job(100'000)), 20);
  EXPECT_TRUE(chief.error);
  for (auto* follower : {&one, &two}) {
    const End end = follower->get();
    ASSERT_TRUE(end.error);
    EXPECT_EQ(end.error->code(), Code::kPeerLost) << end.error->what();
    EXPECT_THAT(end.error->what(), HasSubstr("the chief ended the job: killed"));
  }
  EXPECT_LT(Clock::now() - begin, 10s) << "not by a deadline";
}

TEST_F(FollowersTest, WithAnotherJobAreRefused) {
  workers_ = 2;
  heartbeat_timeout_ = 300ms;
  auto chief = start(0, slow(job(50)));
  Job other = job(50);
  other.every = 7;
  const End one = process(1, other);
  ASSERT_TRUE(one.error);
  EXPECT_EQ(one.error->code(), Code::kInvalid);
  EXPECT_THAT(one.error->what(), HasSubstr("every: 7"));
  EXPECT_THAT(one.error->what(), testing::Not(HasSubstr("\n"))) << "settings are a line";
  EXPECT_FALSE(chief.get().error);
}

// Servers in another order would receive the gradients of other servers.
TEST_F(FollowersTest, WithAnotherClusterAreRefusedAndBothAreShown) {
  workers_ = 2;
  heartbeat_timeout_ = 300ms;
  cluster_ = {"/job:worker/task:0 a:1\n/job:ps/task:0 s:1\n/job:ps/task:1 s:2\n",
              "/job:worker/task:0 a:1\n/job:ps/task:0 s:2\n/job:ps/task:1 s:1\n"};
  auto chief = start(0, slow(job(50)));
  const End one = process(1, job(50));
  ASSERT_TRUE(one.error);
  EXPECT_EQ(one.error->code(), Code::kInvalid);
  for (const char* said : {"clusters differ", "'/job:ps/task:0 s:1'", "'/job:ps/task:0 s:2'",
                           "the chief:\n/job:worker", "worker 1:\n/job:worker"})
    EXPECT_THAT(one.error->what(), HasSubstr(said));
  EXPECT_FALSE(chief.get().error);
}

// Variables in another order would lie on other servers. The error shows both orders.
TEST_F(FollowersTest, WithAnotherPlacementAreRefusedAndBothAreShown) {
  workers_ = 2;
  heartbeat_timeout_ = 300ms;
  partitioner_[1] = FixedShards{1};
  auto chief = start(0, slow(job(50)));
  const End one = process(1, job(50));
  ASSERT_TRUE(one.error);
  EXPECT_EQ(one.error->code(), Code::kInvalid);
  EXPECT_THAT(one.error->what(), HasSubstr("the processes' jobs differ: in line "));
  EXPECT_THAT(one.error->what(), HasSubstr("the chief:\n"));
  EXPECT_THAT(one.error->what(), HasSubstr("worker 1:\n"));
  EXPECT_FALSE(chief.get().error);
}

}  // namespace followers_test
}  // namespace lockstep::test
