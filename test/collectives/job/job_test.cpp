// SPDX-License-Identifier: MIT
// A job runs plans over threads and over sockets, without MPI, and stops them when a rank is lost.
// Children play the processes that die.
#include "collectives/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/algorithms/registry.h"
#include "collectives/job/agreement.h"
#include "collectives/job/host_memory.h"
#include "collectives/job/job_team.h"
#include "collectives/job/rank_link.h"
#include "engine/cpu/cpu_device.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace job_test {

using namespace std::chrono_literals;
using collectives::HostMemory;
using collectives::Job;
using collectives::JobTeam;
using collectives::RankLink;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kCount = 1000;

// Runs `body` for each rank on its own thread. `host`: one entry per rank.
void on_ranks(const std::vector<int>& host, const std::function<void(Job&)>& body) {
  const auto views = collectives::in_memory_bootstrap(host, 20s);
  std::vector<std::jthread> threads;
  for (const auto& view : views)
    threads.emplace_back([&, mine = view.get()] {
      Job job(collectives::rank_of_each_process(*mine), {.deadline = 20s});
      body(job);
    });
}

std::unique_ptr<engine::Ops> kernels() {
  return engine::cpu_device()->ops(engine::DType::kFloat32, {.threads = 1});
}

// Returns a sum of kCount numbers by this algorithm, ready to start.
RankLink sum(Job& job, const engine::Ops& ops, const collectives::Algorithm& algorithm) {
  collectives::Request request;
  request.name = algorithm.name;
  request.subject = {0, kCount};
  request.host = job.ranks().host;
  return {job,
          ops,
          {{algorithm.make(request), {}, false}},
          kCount * sizeof(float),
          algorithm.scratch(request) * sizeof(float),
          "a test"};
}

TEST(Job, RunsEveryAlgorithmOverThreadsAndOverTcp) {
  for (const std::vector<int>& host : {std::vector{0, 0, 0}, {0, 1}, {0, 0, 1, 1}})
    on_ranks(host, [&](Job& job) {
      const auto ops = kernels();
      for (const collectives::Algorithm& algorithm : collectives::all_reduce_algorithms()) {
        if (!algorithm.refusal(host).empty()) continue;
        RankLink link = sum(job, *ops, algorithm);
        auto* const values = reinterpret_cast<float*>(link.data());
        for (std::size_t i = 0; i < kCount; ++i) values[i] = float(i % 7) + float(job.rank());
        link.start(0);
        link.executor().wait(0);
        std::size_t wrong = 0;
        const auto ranks = float(job.size());
        for (std::size_t i = 0; i < kCount; ++i)
          wrong += values[i] != ranks * float(i % 7) + ranks * (ranks - 1) / 2;
        EXPECT_EQ(wrong, 0u) << algorithm.name << " of " << testing::PrintToString(host);
        job.bootstrap().all_gather("", "results are read");
      }
    });
}

TEST(Job, ThatIsStoppedEndsTheWaitsOfItsHost) {
  on_ranks({0, 0}, [](Job& job) {
    const auto ops = kernels();
    RankLink link = sum(job, *ops, collectives::find_algorithm("direct"));
    if (job.rank() == 1) return job.stop({Code::kAborted, "rank 1 has no data"});
    try {
      link.start(0);
      link.executor().wait(0);
      ADD_FAILURE() << "rank 1 never came";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kAborted);
      EXPECT_STREQ(error.what(), "rank 1 has no data");
    }
  });
}

// A rank may die between two calls. The wait of the next one names its plan; a second start of that
// plan throws the death alone.
TEST(Job, NamesThePlanThatStartsAfterADeath) {
  on_ranks({0, 0}, [](Job& job) {
    const auto ops = kernels();
    RankLink link = sum(job, *ops, collectives::find_algorithm("direct"));
    if (job.rank() == 1) return;
    job.stop({Code::kPeerLost, "rank 1 (pid 4711) died", {1}});
    const auto told = [&] {
      try {
        link.start(0);
        link.executor().wait(0, "a mean of 1000 numbers");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kPeerLost);
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    EXPECT_THAT(told(), AllOf(StartsWith("rank 1 (pid 4711) died; rank 0 waits for"),
                              HasSubstr("a mean of 1000 numbers"), HasSubstr("missing: rank 1")));
    EXPECT_EQ(told(), "rank 1 (pid 4711) died");
  });
}

// A stop reaches every team that exists, and no team that is already gone.
TEST(Job, CanBeStoppedWhileTeamsComeAndGo) {
  const auto views = collectives::in_memory_bootstrap({0}, 20s);
  Job job(collectives::rank_of_each_process(*views[0]), {});
  const std::size_t bytes = collectives::Team::control_bytes(1, 1);
  const HostMemory memory(job.ranks(), 4096, bytes, "a test: ");
  std::jthread stops([&job](const std::stop_token& over) {
    while (!over.stop_requested()) job.stop({Code::kAborted, "again"});
  });
  for (int made = 0; made < 50; ++made) {
    std::fill_n(memory.control(), bytes, std::byte{});  // not stopped
    const JobTeam team(job, memory, 1);
    ASSERT_TRUE(await([&] { return team.stopped(); })) << "team " << made;
  }
}

TEST(Job, NeedsADeadline) {
  const auto views = collectives::in_memory_bootstrap({0, 0}, 20s);
  try {
    Job(collectives::rank_of_each_process(*views[0]), {.deadline = 0ms});
    ADD_FAILURE() << "it was made";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the deadline must be positive");
  }
}

// This process has rank 0, and children have ranks 1 and 2. Threads made the memory in their place.
class JobDeaths : public testing::Test {
 protected:
  JobDeaths() {
    for (int& child : children_) {
      child = fork();
      while (child == 0) pause();
    }
    job_.emplace(collectives::rank_of_each_process(*views_[0]),
                 std::vector<int>{int(getpid()), children_[0], children_[1]},
                 collectives::JobOptions{});
    std::vector<std::jthread> threads;
    for (std::size_t process = 0; process < views_.size(); ++process)
      threads.emplace_back([this, process] {
        memory_[process].emplace(collectives::rank_of_each_process(*views_[process]), 4096,
                                 collectives::Team::control_bytes(3, 1), "a test: ");
      });
  }
  ~JobDeaths() override {
    job_->release();
    for (const int child : children_) end(child);
  }
  void kill_rank(int rank) { end(std::exchange(children_[rank - 1], 0)); }
  std::string death(int rank, int pid) const {
    return fmt::format("rank {} (pid {}) died", rank, pid);
  }
  std::string lost() const {
    EXPECT_TRUE(await([&] { return job_->lost().has_value(); }));
    const std::optional<Error> lost = job_->lost();
    return lost ? lost->what() : "nobody was lost";
  }

  int children_[2] = {};
  const std::vector<std::unique_ptr<collectives::Bootstrap>> views_ =
      collectives::in_memory_bootstrap({0, 0, 0}, 20s);
  std::optional<Job> job_;
  std::optional<HostMemory> memory_[3];

 private:
  static void end(int child) {
    if (child == 0) return;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
};

TEST_F(JobDeaths, StopTheirTeamsAndBreakOffExchanges) {
  JobTeam team(*job_, *memory_[0], 1);
  const std::string why = death(2, children_[1]);
  kill_rank(2);
  EXPECT_EQ(lost(), why);
  EXPECT_EQ(job_->lost()->code(), Code::kPeerLost);
  EXPECT_THAT(job_->lost()->ranks(), ElementsAre(2));
  EXPECT_TRUE(team.stopped());
  try {
    views_[0]->all_gather("", "something");
    ADD_FAILURE() << "nobody else came";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), why);
  }
}

// A death stops teams that are made later too. It may come in the last exchange before a team is
// made, when no process is waited for any more.
TEST_F(JobDeaths, StopTeamsThatAreMadeLater) {
  const std::string why = death(1, children_[0]);
  kill_rank(1);
  EXPECT_EQ(lost(), why);
  const JobTeam team(*job_, *memory_[0], 1);
  ASSERT_TRUE(team.stopped());
  try {
    team.rethrow();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), why);
  }
}

TEST_F(JobDeaths, AreToldWithWhatTheProcessDoes) {
  const std::string why = death(1, children_[0]);
  const Job::Activity starting(*job_, "the start: ", " too early");
  { const Job::Activity measuring(*job_, "costs: ", {}); }
  kill_rank(1);
  EXPECT_EQ(lost(), "the start: " + why + " too early");
}

TEST_F(JobDeaths, ThatAreExpectedEndNothingButTeams) {
  EXPECT_FALSE(job_->expect_deaths(true));
  kill_rank(1);
  EXPECT_TRUE(await(others_sleep));  // the watch has seen it
  EXPECT_FALSE(job_->lost());
  const JobTeam team(*job_, *memory_[0], 1);
  EXPECT_FALSE(team.stopped());
  const std::string why = death(2, children_[1]);
  kill_rank(2);
  EXPECT_EQ(lost(), why);
  EXPECT_TRUE(team.stopped());
}

TEST_F(JobDeaths, AfterAnErrorOfAllProcessesAreExpected) {
  std::vector<std::jthread> others;
  for (const std::size_t process : {1, 2})
    others.emplace_back([this, process] {
      for (int exchange = 0; exchange < 2; ++exchange) views_[process]->all_gather("", "devices");
    });
  const auto fails = [] { engine::fail(Code::kDevice, "no device"); };
  EXPECT_THROW(collectives::run_collectively(*job_, fails, "devices"), Error);
  others.clear();  // joins
  kill_rank(1);
  EXPECT_TRUE(await(others_sleep));
  EXPECT_FALSE(job_->lost());
}

}  // namespace job_test
}  // namespace lockstep::test
