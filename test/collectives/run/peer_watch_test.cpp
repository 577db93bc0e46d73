// SPDX-License-Identifier: MIT
#include "collectives/run/peer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "test/support/events.h"

namespace lockstep::collectives {
namespace peer_watch_test {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

// Records the calls of the callback, which may come from any thread.
class Losses {
 public:
  PeerWatch::Lost callback() {
    return [this](const PeerProcess& peer) {
      const std::lock_guard lock(mutex_);
      seen_.emplace_back(name(peer), peer.pid);
      changed_.notify_all();
    };
  }
  // Waits until there are `count` losses, or for a long time. Returns all losses.
  std::vector<std::pair<std::string, int>> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 20s, [&] { return seen_.size() >= count; });
    return seen_;
  }
  std::vector<std::pair<std::string, int>> now() { return wait(0); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, int>> seen_;
};

// Holds a child that sleeps, and kills and reaps it at the end.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Child() {
    if (pid_ > 0) end();
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  int pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  void end() {
    kill();
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

TEST(PeerWatch, TellsOfAKilledPeerAndOnlyOfIt) {
  Child one, two;
  Losses losses;
  PeerWatch watch(losses.callback());
  watch.add({{1}, one.pid()});
  watch.add({{2}, two.pid()});
  two.kill();  // not reaped: a zombie counts as dead
  EXPECT_THAT(losses.wait(1), ElementsAre(std::pair(std::string("rank 2"), two.pid())));
  one.kill();
  EXPECT_EQ(losses.wait(2).size(), 2u);
}

TEST(PeerWatch, AnOrderlyExitIsALossToo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    char byte = 0;
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);  // until the other end closes
  }
  Losses losses;
  PeerWatch watch(losses.callback());
  watch.add({{3}, pid});
  EXPECT_THAT(losses.now(), IsEmpty());
  close(ends[1]);
  EXPECT_THAT(losses.wait(1), ElementsAre(std::pair(std::string("rank 3"), int(pid))));
  close(ends[0]);
  waitpid(pid, nullptr, 0);
}

TEST(PeerWatch, APeerThatIsGoneAlreadyIsLost) {
  Child child;
  const int pid = child.pid();
  child.end();
  Losses losses;
  PeerWatch watch(losses.callback());
  EXPECT_TRUE(test::await(test::others_sleep));
  watch.add({{0}, pid});
  EXPECT_THAT(losses.wait(1), ElementsAre(std::pair(std::string("rank 0"), pid)));
}

TEST(PeerWatch, AfterReleaseDeathsAreExpected) {
  Child child, late;
  Losses losses;
  {
    PeerWatch watch(losses.callback());
    watch.add({{1}, child.pid()});
    watch.release();
    watch.add({{2}, late.pid()});
    child.end();
    late.end();
    EXPECT_TRUE(test::await(test::others_sleep));  // the watch sleeps again
  }
  EXPECT_THAT(losses.now(), IsEmpty());
}

// Two children die at once. The watch is released while the first is reported, so the second is not
// reported.
TEST(PeerWatch, NothingIsToldOfThatWasNotBeforeTheRelease) {
  std::promise<void> prepared, released;
  Losses losses;
  std::atomic<int> calls{0};
  const auto seen = losses.callback();
  Child first, one, two;
  {
    PeerWatch watch([&](const PeerProcess& peer) {
      const int call = calls++;
      if (call == 0) prepared.get_future().wait();
      seen(peer);
      if (call == 1) released.get_future().wait();
    });
    watch.add({{0}, first.pid()});
    first.kill();
    watch.add({{1}, one.pid()});
    watch.add({{2}, two.pid()});
    one.end();
    two.end();
    prepared.set_value();
    EXPECT_EQ(losses.wait(2).size(), 2u);
    watch.release();
    released.set_value();
  }
  EXPECT_EQ(losses.now().size(), 2u);
}

TEST(PeerWatch, ManyPeersAreEachToldOfOnce) {
  constexpr std::size_t kPeers = 60;
  std::vector<Child> children(kPeers);
  Losses losses;
  PeerWatch watch(losses.callback());
  // Four threads add the peers while some of them die.
  {
    std::vector<std::jthread> adders;
    for (std::size_t t = 0; t < 4; ++t) {
      adders.emplace_back([&, t] {
        for (std::size_t i = t; i < kPeers; i += 4) {
          if (i % 3 == 0) children[i].kill();
          watch.add({{int(i)}, children[i].pid()});
        }
      });
    }
  }
  EXPECT_EQ(losses.wait(kPeers / 3).size(), kPeers / 3);
  std::vector<std::pair<std::string, int>> expected;
  for (std::size_t i = 0; i < kPeers; ++i) {
    expected.emplace_back("rank " + std::to_string(i), children[i].pid());
    children[i].kill();
  }
  EXPECT_THAT(losses.wait(kPeers), UnorderedElementsAreArray(expected));
}

TEST(PeerWatch, WhatIsNoProcessIsAnError) {
  PeerWatch watch([](const PeerProcess&) {});
  EXPECT_THROW(watch.add({{1}, -5}), engine::Error);
}

TEST(PeerWatch, EndsAtOnceWithPeersAlive) {
  Child child;
  Losses losses;
  {
    PeerWatch watch(losses.callback());
    watch.add({{1}, child.pid()});
  }
  EXPECT_THAT(losses.now(), IsEmpty());
}

TEST(PeerWatch, ADeathNamesTheRanksAndCarriesThem) {
  const engine::Error one = death({{3}, 4711});
  EXPECT_EQ(one.code(), engine::Code::kPeerLost);
  EXPECT_STREQ(one.what(), "rank 3 (pid 4711) died");
  EXPECT_THAT(one.ranks(), ElementsAre(3));
  EXPECT_FALSE(one.located());
  const engine::Error more = death({{4, 5, 6}, 7}, "calibration: ", " while costs were measured");
  EXPECT_STREQ(more.what(), "calibration: ranks 4 to 6 (pid 7) died while costs were measured");
  EXPECT_THAT(more.ranks(), ElementsAre(4, 5, 6));
}

}  // namespace peer_watch_test
}  // namespace lockstep::collectives
