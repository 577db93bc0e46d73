// SPDX-License-Identifier: MIT
// Who makes which step: every example once, whoever is lost.
#include "strategies/parameter_server/worker/work_dealer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lockstep::test {
namespace work_dealer_test {

using engine::Work;
using strategies::WorkDealer;

engine::WorkSpec segment(std::int64_t steps, std::uint64_t examples = 39, std::size_t batch = 11) {
  engine::WorkSpec work;
  work.examples = examples;
  work.global_batch = batch;
  work.first_step = 5;
  work.steps = steps;
  return work;
}

TEST(WorkDealer, AsynchronousStepsGoToWhoeverAsks) {
  WorkDealer dealer(3, 0);
  dealer.begin(segment(5));
  std::vector<std::int64_t> steps;
  std::size_t examples = 0;
  for (int worker = 0; const auto work = dealer.next(worker % 3); ++worker) {
    steps.push_back(work->step);
    examples += work->local_batch.size();
    EXPECT_EQ(work->local_batch.size(), work->global_batch);
    EXPECT_FALSE(dealer.finished());
    dealer.done(worker % 3, work->step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{5, 6, 7, 8, 9}));
  EXPECT_EQ(examples, 39u + 11u);
  EXPECT_TRUE(dealer.finished());
  EXPECT_EQ(dealer.standing().step, 10);
  EXPECT_EQ(dealer.standing().position, (engine::DataPosition{1, 11}));
}

TEST(WorkDealer, TheFirstStepsAreOneWorkersAlone) {
  WorkDealer dealer(3, 0, 7);
  dealer.begin(segment(4));  // from step 5 on
  EXPECT_TRUE(dealer.warming_up(1));
  EXPECT_FALSE(dealer.waiting_for(1));
  EXPECT_FALSE(dealer.next(1));
  EXPECT_EQ(dealer.next(0)->step, 5);
  EXPECT_FALSE(dealer.next(2));
  EXPECT_EQ(dealer.next(0)->step, 6);
  EXPECT_FALSE(dealer.warming_up(1));
  EXPECT_EQ(dealer.next(1)->step, 7);
  dealer.begin(segment(2));
  dealer.stop();
  EXPECT_FALSE(dealer.warming_up(1)) << "nothing will be dealt";
  EXPECT_TRUE(dealer.finished());
  WorkDealer shares(2, 2, 1000);
  shares.begin(segment(2));
  EXPECT_TRUE(shares.next(1)) << "in step there is nothing to warm up";
}

// Random workers die in the middle of random steps; the others do their work, and none twice.
TEST(WorkDealer, AsynchronousWorkOfTheLostIsDoneOnceByOthers) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    WorkDealer dealer(4, 0);
    dealer.begin(segment(40));
    std::map<std::int64_t, int> finished;
    std::vector<std::vector<Work>> held(4);
    for (int turn = 0; !dealer.finished(); ++turn) {
      ASSERT_LT(turn, 10000);
      const int worker = int(random() % 4);
      auto& mine = held[std::size_t(worker)];
      const int what = int(random() % 10);
      if (what < 5) {
        if (const auto work = dealer.next(worker)) mine.push_back(*work);
      } else if (what < 9 && !mine.empty()) {
        ++finished[mine.front().step];
        dealer.done(worker, mine.front().step);
        mine.erase(mine.begin());
      } else if (what == 9) {
        dealer.lost(worker);
        mine.clear();
      }
    }
    ASSERT_EQ(finished.size(), 40u) << "seed " << seed;
    for (const auto& [step, times] : finished) EXPECT_EQ(times, 1) << step;
    EXPECT_EQ(dealer.standing().step, 45);
  }
}

TEST(WorkDealer, SynchronousStepsAreSharedByAll) {
  WorkDealer dealer(3, 3);
  dealer.begin(segment(4));
  for (std::int64_t step = 5; step < 9; ++step) {
    std::size_t examples = 0, whole = 0;
    for (int worker = 0; worker < 3; ++worker) {
      const auto work = dealer.next(worker);
      ASSERT_TRUE(work);
      EXPECT_EQ(work->step, step);
      examples += work->local_batch.size();
      whole = work->global_batch;
    }
    EXPECT_EQ(examples, whole);
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_EQ(dealer.standing().step, step);
      dealer.done(worker, step);
    }
  }
  EXPECT_FALSE(dealer.next(1));
  EXPECT_TRUE(dealer.finished());
}

TEST(WorkDealer, WhoComesAgainBeginsWithWhatItHadNotFinished) {
  WorkDealer dealer(2, 2);
  dealer.begin(segment(10));
  for (int worker = 0; worker < 2; ++worker) dealer.done(worker, dealer.next(worker)->step);
  EXPECT_EQ(dealer.next(1)->step, 6);
  EXPECT_EQ(dealer.next(1)->step, 7);
  dealer.lost(1);
  EXPECT_TRUE(dealer.waiting_for(1));
  const auto again = dealer.next(1);
  EXPECT_EQ(again->step, 6);
  EXPECT_EQ(again->after, (engine::DataPosition{0, 22}));
}

// With one worker to spare nobody waits for the slowest, which goes on where the others are.
TEST(WorkDealer, OneOfThreeMayBeMissing) {
  WorkDealer dealer(3, 2);
  dealer.begin(segment(10));
  ASSERT_EQ(dealer.next(2)->step, 5);
  for (std::int64_t step = 5; step < 12; ++step) {
    for (int worker = 0; worker < 2; ++worker) {
      ASSERT_EQ(dealer.next(worker)->step, step);
      dealer.done(worker, step);
    }
    EXPECT_EQ(dealer.standing().step, step + 1);
  }
  dealer.done(2, 5);
  EXPECT_EQ(dealer.next(2)->step, 12);
}

TEST(WorkDealer, StoppedAsynchronousWorkersDealNoMore) {
  WorkDealer dealer(2, 0);
  dealer.begin(segment(10));
  ASSERT_TRUE(dealer.next(0));
  ASSERT_TRUE(dealer.next(1));
  dealer.stop();
  EXPECT_FALSE(dealer.next(0));
  EXPECT_FALSE(dealer.finished());
  dealer.lost(0);
  EXPECT_EQ(dealer.next(1)->step, 5);  // not lost with its worker
  dealer.done(1, 5);
  dealer.done(1, 6);
  EXPECT_TRUE(dealer.finished());
  EXPECT_EQ(dealer.standing().step, 7);
}

TEST(WorkDealer, PausedWorkersEndTheSegmentAndTheRunIsNotStopped) {
  WorkDealer dealer(2, 0);
  dealer.begin(segment(10));
  ASSERT_TRUE(dealer.next(0));
  dealer.pause();
  EXPECT_FALSE(dealer.next(1));
  EXPECT_FALSE(dealer.finished());
  dealer.done(0, 5);
  EXPECT_TRUE(dealer.finished());
  EXPECT_FALSE(dealer.stopped());
  EXPECT_EQ(dealer.standing().step, 6);
}

// Nobody waits for a gradient of a worker that has stopped before.
TEST(WorkDealer, StoppedSynchronousWorkersEndWithTheSameStep) {
  WorkDealer dealer(2, 2);
  dealer.begin(segment(10));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(dealer.next(0)->step, 5 + i);
  ASSERT_EQ(dealer.next(1)->step, 5);
  dealer.stop();
  EXPECT_FALSE(dealer.next(0));
  EXPECT_EQ(dealer.next(1)->step, 6);
  EXPECT_EQ(dealer.next(1)->step, 7);
  EXPECT_FALSE(dealer.next(1));
  for (std::int64_t step = 5; step < 8; ++step)
    for (int worker = 0; worker < 2; ++worker) dealer.done(worker, step);
  EXPECT_TRUE(dealer.finished());
  EXPECT_EQ(dealer.standing().step, 8);
}

}  // namespace work_dealer_test
}  // namespace lockstep::test
