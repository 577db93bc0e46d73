// SPDX-License-Identifier: MIT
// One of a group throws: the others stop, join throws that exception, and who is stuck is named.
#include "engine/base/join_all.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace join_all_test {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr milliseconds kLong = std::chrono::minutes(10);

void wait_for_stop(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait(lock, stop, [] { return false; });
}

TEST(JoinAll, OneOfEightThrowsTheOthersStopAndJoinThrowsItsException) {
  JoinAll group;
  std::atomic<int> stopped = 0;
  for (int i = 0; i < 8; ++i) {
    group.start("worker " + std::to_string(i), [&, i](std::stop_token stop) {
      if (i == 5) throw Error(Code::kCorrupt, "number 5 is broken");
      wait_for_stop(stop);
      ++stopped;
    });
  }
  try {
    group.join(kLong);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_STREQ(error.what(), "number 5 is broken");
  }
  EXPECT_EQ(stopped, 7);
}

// The others throw because they are stopped: those are consequences, not the first exception.
TEST(JoinAll, TheFirstExceptionIsKeptAndNoLaterOne) {
  for (int round = 0; round < 50; ++round) {
    JoinAll group;
    for (int i = 0; i < 4; ++i) {
      group.start("worker", [i](std::stop_token stop) {
        if (i == 0) throw Error(Code::kInvalid, "the cause");
        while (!stop.stop_requested()) std::this_thread::yield();
        throw Error(Code::kAborted, "a consequence");
      });
    }
    EXPECT_THAT([&] { group.join(kLong); }, ThrowsMessage<Error>("the cause"));
  }
}

TEST(JoinAll, WithoutAnExceptionItWaitsForAllAndThrowsNothing) {
  JoinAll group;
  std::atomic<int> ended = 0;
  std::latch all(4);
  for (int i = 0; i < 4; ++i) {
    group.start("worker", [&](std::stop_token stop) {
      all.arrive_and_wait();  // they do run at once
      EXPECT_FALSE(stop.stop_requested());
      ++ended;
    });
  }
  group.join(milliseconds(0));  // nobody asks them to stop, so grace is of no account
  EXPECT_EQ(ended, 4);
}

TEST(JoinAll, TheOwnerMayAskToStop) {
  JoinAll group;
  for (int i = 0; i < 3; ++i) group.start("worker", wait_for_stop);
  EXPECT_FALSE(group.stop_token().stop_requested());
  group.request_stop();
  EXPECT_TRUE(group.stop_token().stop_requested());
  group.join(kLong);
}

// What the stuck thread uses is shared with it: it outlives group and test.
TEST(JoinAll, AThreadThatIsStuckIsNamedAndLeftAlone) {
  struct Door {
    std::promise<void> opened;
    std::promise<void> gone;
  };
  const auto door = std::make_shared<Door>();
  std::future<void> gone = door->gone.get_future();
  {
    JoinAll group;
    group.start("patient", wait_for_stop);
    group.start("stuck one", [door](std::stop_token) {
      door->opened.get_future().wait();
      door->gone.set_value();
    });
    group.start("broken", [](std::stop_token) { throw Error(Code::kIo, "the disk is full"); });
    EXPECT_THAT([&] { group.join(milliseconds(50)); },
                ThrowsMessage<Error>(AllOf(HasSubstr("within 50 ms"), HasSubstr("stuck one"),
                                           HasSubstr("the disk is full"))));
  }
  door->opened.set_value();
  gone.wait();
}

TEST(JoinAll, AnExceptionOfAnyTypeIsThrownAgain) {
  JoinAll group;
  group.start("odd", [](std::stop_token) { throw 7; });
  EXPECT_THROW(group.join(kLong), int);
}

TEST(JoinAll, AGroupCanBeUsedAgainAfterJoin) {
  JoinAll group;
  group.join(kLong);  // nobody
  group.start("broken", [](std::stop_token) { throw Error(Code::kIo, "once"); });
  EXPECT_THROW(group.join(kLong), Error);
  std::atomic<bool> ran = false;
  group.start("whole", [&](std::stop_token stop) { ran = !stop.stop_requested(); });
  group.join(kLong);
  EXPECT_TRUE(ran);
}

TEST(JoinAll, AGroupThatNobodyJoinedStopsItsThreads) {
  std::atomic<int> stopped = 0;
  {
    JoinAll group;
    for (int i = 0; i < 3; ++i) {
      group.start("worker", [&](std::stop_token stop) {
        wait_for_stop(stop);
        ++stopped;
      });
    }
  }
  EXPECT_EQ(stopped, 3);
}

}  // namespace join_all_test
}  // namespace lockstep::engine
