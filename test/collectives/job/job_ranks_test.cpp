// SPDX-License-Identifier: MIT
// The ranks of a job as one of its processes sees them, and which of them it watches. Children play
// the other processes.
#include "collectives/job/job_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "engine/base/error.h"

namespace lockstep::test {
namespace job_ranks_test {

using namespace std::chrono_literals;
using collectives::JobRanks;
using testing::ElementsAre;
using testing::IsEmpty;

int child() {
  const pid_t pid = fork();
  if (pid == 0)
    for (;;) pause();
  return int(pid);
}

// Kills all processes of `pids` but this one. Returns the names that the watch reported.
std::vector<std::string> told(const JobRanks& ranks, const std::vector<int>& pids, int* watched) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> names;
  collectives::PeerWatch watch([&](const collectives::PeerProcess& peer) {
    const std::scoped_lock lock(mutex);
    names.push_back(name(peer));
    changed.notify_all();
  });
  *watched = watch_host(ranks, pids, watch);
  for (const int pid : pids)
    if (pid != int(getpid())) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  std::unique_lock lock(mutex);
  changed.wait_for(lock, 20s, [&] { return names.size() == std::size_t(*watched); });
  std::sort(names.begin(), names.end());
  return names;
}

TEST(JobRanks, OthersOfThisHostAreWatchedByTheNamesOfTheirRanks) {
  const auto views = collectives::in_memory_bootstrap({0, 0, 1, 0}, 60s);
  // This is process 1, with rank 2; process 0 has two ranks, process 2 is on another host.
  const JobRanks ranks{*views[1], {0, 0, 1, 2, 2, 3}, {0, 0, 0, 1, 1, 0}};
  int watched = 0;
  EXPECT_THAT(told(ranks, {child(), int(getpid()), child(), child()}, &watched),
              ElementsAre("rank 5", "ranks 0 to 1"));
  EXPECT_EQ(watched, 2);
}

TEST(JobRanks, ThreadsOfOneProcessWatchNobody) {
  const auto views = collectives::in_memory_bootstrap({0, 0, 0}, 60s);
  const int me = int(getpid());
  int watched = -1;
  EXPECT_THAT(told(collectives::rank_of_each_process(*views[0]), {me, me, me}, &watched),
              IsEmpty());
  EXPECT_EQ(watched, 0);
}

TEST(JobRanks, OfATopologyAreThoseOfItsProcesses) {
  const auto views = collectives::in_memory_bootstrap({0, 1}, 60s);
  std::vector<std::thread> threads;
  for (int process = 0; process < 2; ++process)
    threads.emplace_back([&, process] {
      auto& mine = *views[std::size_t(process)];
      const auto topology =
          collectives::discover(mine, std::vector<std::string>(process == 0 ? 2 : 1, "cpu:0"));
      const JobRanks ranks = collectives::ranks_of(mine, topology);
      EXPECT_EQ(ranks.process, (std::vector<int>{0, 0, 1}));
      EXPECT_EQ(ranks.host, (std::vector<int>{0, 0, 1}));
      EXPECT_EQ(ranks.mine(), process == 0 ? (std::vector<int>{0, 1}) : std::vector<int>{2});
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace job_ranks_test
}  // namespace lockstep::test
