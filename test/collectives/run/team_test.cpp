// SPDX-License-Identifier: MIT
// The control block is used between threads, between processes, during sleeps and after a death.
#include "collectives/run/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "collectives/algorithms/algorithms.h"
#include "collectives/topology/binding.h"
#include "test/collectives/job.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace team_test {

using collectives::Team;
using engine::Code;
using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Threads {
  explicit Threads(std::vector<int> local, std::size_t plans = 1)
      : control(Team::control_bytes(local.size(), plans)), team(local, plans, control.data()) {}
  engine::Buffer control;
  Team team;
};

TEST(Team, CountsEachLaneOfEachRankOfEachPlan) {
  Threads t({2, 5}, 3);
  t.team.arrive(1, 5, 2);
  t.team.arrive(1, 5, 2);
  t.team.arrive(2, 2, 15);
  for (int plan = 0; plan < 3; ++plan)
    for (const int rank : {2, 5})
      for (int lane = 0; lane < collectives::kMaxLanes; ++lane) {
        const std::uint64_t wanted = plan == 1 && rank == 5 && lane == 2    ? 2
                                     : plan == 2 && rank == 2 && lane == 15 ? 1
                                                                            : 0;
        EXPECT_EQ(t.team.counter(plan, rank, lane).load(), wanted);
      }
  EXPECT_TRUE(t.team.is_local(5));
  EXPECT_FALSE(t.team.is_local(3));
}

TEST(Team, CountersOfTwoRanksShareNoCacheLine) {
  Threads t({0, 1}, 2);
  std::vector<std::uintptr_t> lines;
  for (int plan = 0; plan < 2; ++plan)
    for (const int rank : {0, 1})
      lines.push_back(reinterpret_cast<std::uintptr_t>(&t.team.counter(plan, rank, 0)) / 64);
  for (std::size_t i = 1; i < lines.size(); ++i) EXPECT_GE(lines[i], lines[i - 1] + 2);
}

// A waiting rank keeps the ranks of its processor from coming.
TEST(Team, KnowsWhoLastArrivedOnThisProcessor) {
  const std::vector<int> processors = collectives::allowed_processors();
  Threads t({0, 1, 2});
  const auto on = [&](int processor, const std::function<void()>& body) {
    std::thread([&] {
      collectives::bind_this_thread(std::span(&processor, 1));
      body();
    }).join();
  };
  on(processors[0], [&] {
    EXPECT_FALSE(t.team.beside(0));  // no rank has arrived yet
    t.team.arrive(0, 0, 0);
    EXPECT_TRUE(t.team.beside(0));
    EXPECT_FALSE(t.team.beside(1));
  });
  if (processors.size() < 2) return;
  on(processors[1], [&] {
    EXPECT_FALSE(t.team.beside(0));
    t.team.arrive(0, 0, 0);  // the rank was moved
    EXPECT_TRUE(t.team.beside(0));
  });
  on(processors[0], [&] { EXPECT_FALSE(t.team.beside(0)); });
}

TEST(Team, TheFirstReasonWinsAndStays) {
  Threads t({0});
  EXPECT_FALSE(t.team.stopped());
  t.team.stop({Code::kPeerLost, "rank 7 died", {7}, true});
  t.team.stop({Code::kIo, "later"});
  EXPECT_TRUE(t.team.stopped());
  for (int again = 0; again < 2; ++again) {
    try {
      t.team.rethrow();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), Code::kPeerLost);
      EXPECT_STREQ(error.what(), "rank 7 died");
      EXPECT_EQ(error.ranks(), std::vector<int>{7});
      EXPECT_TRUE(error.located());
    }
  }
}

TEST(Team, OfManyReasonsAtOnceOneIsKeptWhole) {
  for (int round = 0; round < 20; ++round) {
    Threads t({0});
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        t.team.stop({Code::kAborted, std::string(900, char('a' + i))});
      });
    for (auto& thread : threads) thread.join();
    try {
      t.team.rethrow();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const engine::Error& error) {
      const std::string why = error.what();
      EXPECT_EQ(why, std::string(900, why[0]));
    }
  }
}

TEST(Team, ALongReasonIsCut) {
  Threads t({0});
  t.team.stop({Code::kIo, std::string(5000, 'x')});
  EXPECT_THROW(
      {
        try {
          t.team.rethrow();
        } catch (const engine::Error& error) {
          EXPECT_EQ(std::string(error.what()), std::string(1016, 'x'));
          throw;
        }
      },
      engine::Error);
}

TEST(Team, AReasonWhoseWriterDiedIsStillAStop) {
  Threads t({0});
  *reinterpret_cast<std::uint32_t*>(t.control.data()) = 1;  // begins a stop and never completes it
  EXPECT_TRUE(t.team.stopped());
  EXPECT_THROW(t.team.rethrow(), engine::Error);
}

TEST(Team, RefusesRanksThatAreNoTeam) {
  engine::Buffer control(Team::control_bytes(2, 1));
  EXPECT_THROW(Team({1, 0}, 1, control.data()), engine::Error);
  EXPECT_THROW(Team({1, 1}, 1, control.data()), engine::Error);
  EXPECT_THROW(Team({}, 1, control.data()), engine::Error);
  EXPECT_THROW(Team({0}, 1, control.data() + 8), engine::Error);
}

TEST(Team, DoesNotSleepWhenSomethingHappenedMeanwhile) {
  Threads t({0});
  const Team::Sleeper sleeper(t.team);
  t.team.arrive(0, 0, 0);
  const auto begin = engine::Clock::now();
  sleeper.sleep(std::chrono::seconds(30));
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(20));
}

// Two threads pass a counter back and forth. Each sleeps for up to half a minute unless it is
// woken, so one lost wake-up shows.
TEST(Team, NoWakeUpIsLost) {
  Threads t({0, 1});
  constexpr std::uint64_t kRounds = 3000;
  const auto begin = engine::Clock::now();
  const auto play = [&](int me) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      if (me == 0) t.team.arrive(0, 0, 0);
      while (true) {
        const Team::Sleeper sleeper(t.team);
        if (t.team.counter(0, 1 - me, 0).load() >= round) break;
        sleeper.sleep(std::chrono::seconds(30));
      }
      if (me == 1) t.team.arrive(0, 1, 0);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(29));
}

TEST(Team, AStopWakesSleepers) {
  Threads t({0});
  const auto begin = engine::Clock::now();
  std::thread sleeper([&] { Team::Sleeper(t.team).sleep(std::chrono::seconds(30)); });
  EXPECT_TRUE(await(others_sleep));
  t.team.stop({Code::kAborted, "over"});
  sleeper.join();
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(20));
}

// With more ranks than cores, tiny plans take bounded time, because waiters yield and sleep instead
// of spinning.
TEST(Team, EightRanksOnFewCoresDoManyTinyAllReduces) {
  Request request;
  request.subject = {0, 4};
  request.host = hosts("one", 8);
  JobOptions options;
  Job job({{direct_all_reduce(request), {}, false}}, 4, options);
  constexpr int kTimes = 2000;
  for (const auto& error : job.run([&](int rank) {
         for (int i = 0; i < kTimes; ++i) {
           for (int k = 0; k < 4; ++k) job.values<float>(rank)[k] = float(rank + k + i % 3);
           job.executor(rank).start(0, nullptr);
           job.executor(rank).wait(0);
           if (job.values<float>(rank)[1] != float(28 + 8 + 8 * (i % 3)))
             throw std::runtime_error("a wrong sum");
         }
       }))
    EXPECT_EQ(text(error), "");
  for (int rank = 0; rank < 8; ++rank) EXPECT_GT(job.executor(rank).waited_seconds(), 0);
}

// A small plan whose other ranks are already there completes before a clock could be read.
TEST(Team, WhatIsThroughAtTheFirstLooksCountsAsNoWaiting) {
  Request request;
  request.subject = {0, 100};
  request.host = {0, 0};
  Job job({{one_shot_all_reduce(request), {}, false}}, one_shot_scratch(request));
  for (int rank = 0; rank < 2; ++rank) {
    std::fill_n(job.values<float>(rank), 100, float(rank + 1));
    job.executor(rank).start(0, nullptr);
  }
  job.executor(0).progress();  // rank 0 arrives
  EXPECT_FALSE(job.executor(0).done(0));
  job.executor(1).wait(0);
  EXPECT_EQ(job.executor(1).waited_seconds(), 0);
  job.executor(0).wait(0);
  EXPECT_EQ(job.values<float>(0)[99], 3);
  EXPECT_EQ(job.values<float>(1)[99], 3);
}

// A communication thread does all the work while the computing thread sleeps in `wait`.
TEST(Team, ACommunicationThreadAndAComputingThreadShareAnExecutor) {
  Request request;
  request.subject = {0, 5000};
  request.host = hosts("equal", 4);
  Job job({{ring_all_reduce(request), {}, false}}, 10000);
  std::atomic<bool> over{false};
  std::vector<std::thread> helpers;
  for (int rank = 0; rank < 4; ++rank)
    helpers.emplace_back([&, rank] {
      while (!over)
        if (!job.executor(rank).progress()) job.executor(rank).sleep(microseconds(1000));
    });
  for (int i = 0; i < 50; ++i) {
    for (int rank = 0; rank < 4; ++rank)
      std::fill_n(job.values<float>(rank), 5000, float(rank + i));
    job.execute({0});
    for (int rank = 0; rank < 4; ++rank)
      for (const std::size_t k : {0, 2499, 4999})
        EXPECT_EQ(job.values<float>(rank)[k], float(6 + 4 * i));
  }
  over = true;
  for (auto& helper : helpers) helper.join();
}

// Runs ranks as processes over one shared mapping.
class Processes {
 public:
  Processes(int ranks, std::size_t elements) : plan_(make(ranks, elements)), elements_(elements) {
    const std::size_t control = (Team::control_bytes(std::size_t(ranks), 1) + 4095) / 4096 * 4096;
    bytes_ = control + std::size_t(ranks) * elements * sizeof(float);
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    first_ = memory_ + control;
  }
  ~Processes() { munmap(memory_, bytes_); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Starts a rank in a child process, which runs `times` all-reduces. The exit code is 0 if the
  // sums are right, 1 if not, and 2 plus the code of an error that it caught.
  pid_t fork_rank(int rank, int times, milliseconds deadline) {
    const pid_t child = fork();
    if (child == 0) _exit(rank_main(rank, times, deadline));
    return child;
  }
  Team team() {
    Team team(plan_[0].plan.host.empty() ? std::vector<int>{} : all(), 1, memory_);
    for (const int rank : all())
      team.set_base(rank, Space::kGradient, first_ + std::size_t(rank) * elements_ * sizeof(float));
    return team;
  }

 private:
  static StepPlan make(int ranks, std::size_t elements) {
    Request request;
    request.name = "bucket 0";
    request.subject = {0, elements};
    request.host = hosts("one", ranks);
    return {{direct_all_reduce(request), {}, false}};
  }
  std::vector<int> all() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < plan_[0].plan.ranks(); ++rank) ranks.push_back(rank);
    return ranks;
  }
  int rank_main(int rank, int times, milliseconds deadline) {
    try {
      Team mine = team();
      const auto ops = engine::reference_ops(DType::kFloat32);
      Executor executor(rank, mine, nullptr, *ops, {}, {.deadline = deadline});
      executor.open(plan_);
      float* values = reinterpret_cast<float*>(mine.base(rank, Space::kGradient));
      const int n = plan_[0].plan.ranks();
      for (int i = 0; i < times; ++i) {
        std::fill_n(values, elements_, float(rank + i));
        executor.start(0, nullptr);
        executor.wait(0);
        const float wanted = float(n * (n - 1) / 2 + n * i);
        if (values[0] != wanted || values[elements_ - 1] != wanted) return 1;
      }
      return 0;
    } catch (const engine::Error& error) {
      return 2 + int(error.code());
    }
  }

  StepPlan plan_;
  std::size_t elements_, bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::byte* first_ = nullptr;
};

int exit_code(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Processes, AllReduceOverSharedMemory) {
  Processes job(3, 5000);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank)
    children.push_back(job.fork_rank(rank, 200, milliseconds(60000)));
  for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
}

TEST(Processes, OneThatIsKilledIsNamedByTheDeadlineOfTheOthers) {
  Processes job(3, 5000);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank)
    children.push_back(job.fork_rank(rank, 1 << 30, milliseconds(300)));
  Team team = job.team();
  while (team.counter(0, 1, 0).load() < 20) std::this_thread::sleep_for(milliseconds(1));
  kill(children[1], SIGKILL);
  EXPECT_EQ(exit_code(children[1]), -SIGKILL);
  for (const int rank : {0, 2})
    EXPECT_EQ(exit_code(children[std::size_t(rank)]), 2 + int(Code::kTimeout));
  try {
    team.rethrow();
    FAIL() << "nothing was thrown";
  } catch (const engine::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("bucket 0 (direct, 19.5 KiB): rank "));
    EXPECT_THAT(error.what(), testing::StartsWith("rank 1 is missing: "));
  }
}

// Timestamps of waiting hold milliseconds in 32 bits, which wrap around after 49 days. Old ones
// never look new, except near a wrap. A timestamp of another rank just after this rank read the
// clock counts as new too.
TEST(Team, WordsOfWaitingGrowOld) {
  using std::chrono::milliseconds;
  constexpr milliseconds kWindow{2000};
  constexpr auto kDay = std::chrono::hours(24);
  Threads t({0, 1}, 2);
  const engine::Clock::time_point then{std::chrono::hours(1)};
  t.team.note_waiting(1, 0, then);
  t.team.ask(1, 1, then);
  const auto said = [&](engine::Clock::duration later) {
    EXPECT_FALSE(t.team.waits(0, 0, then + later, kWindow));
    EXPECT_EQ(t.team.waits(0, then + later, kWindow), t.team.waits(1, 0, then + later, kWindow));
    EXPECT_EQ(t.team.asked(1, then + later, kWindow).has_value(),
              t.team.waits(1, 0, then + later, kWindow));
    return t.team.waits(1, 0, then + later, kWindow);
  };
  for (const milliseconds later : {milliseconds(-5000), milliseconds(0), milliseconds(2000)})
    EXPECT_TRUE(said(later)) << later.count();
  EXPECT_FALSE(said(milliseconds(2001)));
  for (const int days : {1, 24, 25, 30, 37, 49}) EXPECT_FALSE(said(days * kDay)) << days;
}

}  // namespace team_test
}  // namespace lockstep::test
