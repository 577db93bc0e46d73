// SPDX-License-Identifier: MIT
// Steps are assigned to workers so that each example is used once, even if workers are lost.
#include "strategies/parameter_server/worker/assignments.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lockstep::test {
namespace assignments_test {

using engine::Work;
using strategies::Assignments;

engine::WorkSpec segment(std::int64_t steps, std::uint64_t examples = 39, std::size_t batch = 11) {
  engine::WorkSpec work;
  work.examples = examples;
  work.global_batch = batch;
  work.first_step = 5;
  work.steps = steps;
  return work;
}

TEST(Assignments, AsynchronousStepsGoToWhoeverAsks) {
  Assignments assignments(3, 0);
  assignments.begin(segment(5));
  std::vector<std::int64_t> steps;
  std::size_t examples = 0;
  for (int worker = 0; const auto work = assignments.next(worker % 3); ++worker) {
    steps.push_back(work->step);
    examples += work->local_batch.size();
    EXPECT_EQ(work->local_batch.size(), work->global_batch);
    EXPECT_FALSE(assignments.finished());
    assignments.done(worker % 3, work->step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{5, 6, 7, 8, 9}));
  EXPECT_EQ(examples, 39u + 11u);
  EXPECT_TRUE(assignments.finished());
  EXPECT_EQ(assignments.standing().step, 10);
  EXPECT_EQ(assignments.standing().position, (engine::DataPosition{1, 11}));
}

TEST(Assignments, TheFirstStepsAreOneWorkersAlone) {
  Assignments assignments(3, 0, 7);
  assignments.begin(segment(4));  // from step 5 on
  EXPECT_TRUE(assignments.warming_up(1));
  EXPECT_FALSE(assignments.has_work_for(1));
  EXPECT_FALSE(assignments.next(1));
  EXPECT_EQ(assignments.next(0)->step, 5);
  EXPECT_FALSE(assignments.next(2));
  EXPECT_EQ(assignments.next(0)->step, 6);
  EXPECT_FALSE(assignments.warming_up(1));
  EXPECT_EQ(assignments.next(1)->step, 7);
  assignments.begin(segment(2));
  assignments.stop();
  EXPECT_FALSE(assignments.warming_up(1)) << "nothing will be assigned";
  EXPECT_TRUE(assignments.finished());
  Assignments shares(2, 2, 1000);
  shares.begin(segment(2));
  EXPECT_TRUE(shares.next(1)) << "in step there is nothing to warm up";
}

// If random workers die in the middle of random steps, the others make each lost step once.
TEST(Assignments, AsynchronousWorkOfTheLostIsDoneOnceByOthers) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Assignments assignments(4, 0);
    assignments.begin(segment(40));
    std::map<std::int64_t, int> finished;
    std::vector<std::vector<Work>> held(4);
    for (int turn = 0; !assignments.finished(); ++turn) {
      ASSERT_LT(turn, 10000);
      const int worker = int(random() % 4);
      auto& mine = held[std::size_t(worker)];
      const int what = int(random() % 10);
      if (what < 5) {
        if (const auto work = assignments.next(worker)) mine.push_back(*work);
      } else if (what < 9 && !mine.empty()) {
        ++finished[mine.front().step];
        assignments.done(worker, mine.front().step);
        mine.erase(mine.begin());
      } else if (what == 9) {
        assignments.lost(worker);
        mine.clear();
      }
    }
    ASSERT_EQ(finished.size(), 40u) << "seed " << seed;
    for (const auto& [step, times] : finished) EXPECT_EQ(times, 1) << step;
    EXPECT_EQ(assignments.standing().step, 45);
  }
}

TEST(Assignments, SynchronousStepsAreSharedByAll) {
  Assignments assignments(3, 3);
  assignments.begin(segment(4));
  for (std::int64_t step = 5; step < 9; ++step) {
    std::size_t examples = 0, whole = 0;
    for (int worker = 0; worker < 3; ++worker) {
      const auto work = assignments.next(worker);
      ASSERT_TRUE(work);
      EXPECT_EQ(work->step, step);
      examples += work->local_batch.size();
      whole = work->global_batch;
    }
    EXPECT_EQ(examples, whole);
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_EQ(assignments.standing().step, step);
      assignments.done(worker, step);
    }
  }
  EXPECT_FALSE(assignments.next(1));
  EXPECT_TRUE(assignments.finished());
}

TEST(Assignments, WhoComesAgainBeginsWithWhatItHadNotFinished) {
  Assignments assignments(2, 2);
  assignments.begin(segment(10));
  for (int worker = 0; worker < 2; ++worker)
    assignments.done(worker, assignments.next(worker)->step);
  EXPECT_EQ(assignments.next(1)->step, 6);
  EXPECT_EQ(assignments.next(1)->step, 7);
  assignments.lost(1);
  EXPECT_TRUE(assignments.has_work_for(1));
  const auto again = assignments.next(1);
  EXPECT_EQ(again->step, 6);
  EXPECT_EQ(again->after, (engine::DataPosition{0, 22}));
}

// With one spare worker no one waits for the slowest, which continues at the step of the others.
TEST(Assignments, OneOfThreeMayBeMissing) {
  Assignments assignments(3, 2);
  assignments.begin(segment(10));
  ASSERT_EQ(assignments.next(2)->step, 5);
  for (std::int64_t step = 5; step < 12; ++step) {
    for (int worker = 0; worker < 2; ++worker) {
      ASSERT_EQ(assignments.next(worker)->step, step);
      assignments.done(worker, step);
    }
    EXPECT_EQ(assignments.standing().step, step + 1);
  }
  assignments.done(2, 5);
  EXPECT_EQ(assignments.next(2)->step, 12);
}

TEST(Assignments, StoppedAsynchronousWorkersDealNoMore) {
  Assignments assignments(2, 0);
  assignments.begin(segment(10));
  ASSERT_TRUE(assignments.next(0));
  ASSERT_TRUE(assignments.next(1));
  assignments.stop();
  EXPECT_FALSE(assignments.next(0));
  EXPECT_FALSE(assignments.finished());
  assignments.lost(0);
  EXPECT_EQ(assignments.next(1)->step, 5);  // not lost with its worker
  assignments.done(1, 5);
  assignments.done(1, 6);
  EXPECT_TRUE(assignments.finished());
  EXPECT_EQ(assignments.standing().step, 7);
}

TEST(Assignments, PausedWorkersEndTheSegmentAndTheRunIsNotStopped) {
  Assignments assignments(2, 0);
  assignments.begin(segment(10));
  ASSERT_TRUE(assignments.next(0));
  assignments.pause();
  EXPECT_FALSE(assignments.next(1));
  EXPECT_FALSE(assignments.finished());
  assignments.done(0, 5);
  EXPECT_TRUE(assignments.finished());
  EXPECT_FALSE(assignments.stopped());
  EXPECT_EQ(assignments.standing().step, 6);
}

// No worker waits for the gradient of a worker that has already stopped.
TEST(Assignments, StoppedSynchronousWorkersEndWithTheSameStep) {
  Assignments assignments(2, 2);
  assignments.begin(segment(10));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(assignments.next(0)->step, 5 + i);
  ASSERT_EQ(assignments.next(1)->step, 5);
  assignments.stop();
  EXPECT_FALSE(assignments.next(0));
  EXPECT_EQ(assignments.next(1)->step, 6);
  EXPECT_EQ(assignments.next(1)->step, 7);
  EXPECT_FALSE(assignments.next(1));
  for (std::int64_t step = 5; step < 8; ++step)
    for (int worker = 0; worker < 2; ++worker) assignments.done(worker, step);
  EXPECT_TRUE(assignments.finished());
  EXPECT_EQ(assignments.standing().step, 8);
}

}  // namespace assignments_test
}  // namespace lockstep::test
