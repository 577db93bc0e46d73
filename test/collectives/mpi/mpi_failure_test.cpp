// SPDX-License-Identifier: MIT
// Jobs that fail while they start, under `mpirun --enable-recovery`, which leaves survivors alone.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "collectives/mpi/leave.h"
#include "engine/base/error.h"

namespace {

using namespace std::chrono_literals;
using lockstep::engine::Clock;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  bool ended = false;  // within the time limit
  std::string text;    // standard output and error of all
};

// Returns the number of lines in which a rank says why it leaves.
int reports(const std::string& text) {
  int count = 0;
  for (auto at = text.find("lockstep: rank "); text.find('\n', at) != text.npos;
       at = text.find("lockstep: rank ", at + 1))
    ++count;
  return count;
}

// Runs mpirun with the program of mpi_program.cpp until it ends, `most` is over or there are
// `enough` reports.
Outcome job(int processes, const std::string& part, int rank, std::chrono::seconds most,
            int enough = 1000) {
  std::vector<std::string> words = {std::getenv("LOCKSTEP_MPIRUN"),
                                    "--oversubscribe",
                                    "--bind-to",
                                    "none",
                                    "--enable-recovery",
                                    "-n",
                                    std::to_string(processes),
                                    std::getenv("LOCKSTEP_MPI_PROGRAM"),
                                    part,
                                    std::to_string(rank)};
  if (geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  Outcome outcome;
  const auto end = Clock::now() + most;
  while (reports(outcome.text) < enough) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) break;
    pollfd one{.fd = ends[0], .events = POLLIN, .revents = 0};
    if (poll(&one, 1, int(left)) <= 0) continue;
    char bytes[4096];
    const auto got = read(ends[0], bytes, sizeof bytes);
    if (got <= 0) {
      outcome.ended = true;
      break;
    }
    outcome.text.append(bytes, std::size_t(got));
  }
  close(ends[0]);
  if (!outcome.ended) kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return outcome;
}

class StartOfAJob : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(std::getenv("LOCKSTEP_MPIRUN"), nullptr)
        << "run by meson test, which says where mpirun is";
    ASSERT_NE(std::getenv("LOCKSTEP_MPI_PROGRAM"), nullptr);
  }
};

// MPI_Init's own deadline is 20 s in these jobs, so the watch ends a job that ends earlier.
constexpr auto kFarBelowTheDeadline = 15s;

TEST_F(StartOfAJob, ADeathBeforeMpiStartsIsNamed) {
  const Outcome outcome = job(3, "die-before", 2, kFarBelowTheDeadline);
  EXPECT_TRUE(outcome.ended);
  EXPECT_THAT(outcome.text, ContainsRegex("rank [01]: rank 2 .*died while the job was starting"));
  // A late rank may see the other survivor leave first.
  EXPECT_THAT(outcome.text, ContainsRegex("rank 0: rank [12] .*died while the job was starting"));
  EXPECT_THAT(outcome.text, ContainsRegex("rank 1: rank [02] .*died while the job was starting"));
}

TEST_F(StartOfAJob, ADeathWithinMpiInitIsNamed) {
  const Outcome outcome = job(3, "die-within", 1, kFarBelowTheDeadline);
  EXPECT_TRUE(outcome.ended);
  EXPECT_THAT(outcome.text,
              ContainsRegex("rank 0: rank 1 \\(pid [0-9]+\\) died while the job was starting"));
  EXPECT_THAT(outcome.text,
              ContainsRegex("rank 2: rank 1 \\(pid [0-9]+\\) died while the job was starting"));
}

// All ranks name the stopped process. It is still there, so that mpirun waits for it.
TEST_F(StartOfAJob, AllNameTheProcessThatIsStopped) {
  const std::string text = job(3, "stop-before", 1, kFarBelowTheDeadline, 2).text;
  for (const char* line : {"rank 0: ", "rank 2: "})
    EXPECT_THAT(text, ContainsRegex(line + std::string("[^\n]*rank 1 \\(pid [0-9]+\\) is stopped; "
                                                       "kill -CONT [0-9]+ lets it go on")));
  EXPECT_THAT(text, Not(HasSubstr("died")));
}

TEST_F(StartOfAJob, AProcessThatNeverStartsMpiEndsTheOthersAtTheDeadline) {
  const Outcome outcome = job(2, "stay-away", 1, kFarBelowTheDeadline);
  EXPECT_TRUE(outcome.ended);
  EXPECT_THAT(outcome.text, HasSubstr("rank 0: MPI_Init did not end in 1.5 s"));
}

TEST_F(StartOfAJob, AProcessThatDoesNotComeToAnExchangeIsATimeout) {
  const Outcome outcome = job(2, "no-gather", 1, kFarBelowTheDeadline);
  EXPECT_TRUE(outcome.ended);
  EXPECT_THAT(outcome.text, HasSubstr("rank 0: error timeout"));
}

TEST_F(StartOfAJob, AProcessThatExchangesSomethingElseIsAnErrorOnAll) {
  const Outcome outcome = job(3, "other-exchange", 1, kFarBelowTheDeadline);
  EXPECT_TRUE(outcome.ended);
  for (const char* line : {"rank 0: error invalid: process 0 exchanges pears while process 1 ",
                           "rank 1: error invalid: process 1 exchanges apples while process 0 ",
                           "rank 2: error invalid: process 2 exchanges pears while process 1 "})
    EXPECT_THAT(outcome.text, HasSubstr(line));
}

TEST_F(StartOfAJob, WhoKnowsThatOneIsGoneEndsWithoutIt) {
  const Outcome outcome = job(3, "abandon", 1, kFarBelowTheDeadline);
  EXPECT_TRUE(outcome.ended);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 0 has ended"), HasSubstr("rank 2 has ended")));
  EXPECT_THAT(outcome.text, Not(HasSubstr("error")));
}

TEST_F(StartOfAJob, AfterTheReleaseAnEndIsNoDeath) {
  const Outcome outcome = job(3, "leave-early", 0, kFarBelowTheDeadline);
  EXPECT_TRUE(outcome.ended);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 1 goes on"), HasSubstr("rank 2 goes on")));
  EXPECT_THAT(outcome.text, Not(HasSubstr("died")));
}

TEST(Leave, OneThreadSpeaksForTheProcess) {
  using lockstep::collectives::mpi::leave;
  EXPECT_EXIT(
      {
        const std::jthread other([] { leave("first or second", 50ms); });
        leave("first or second", 50ms);
      },
      testing::ExitedWithCode(75), "^lockstep: first or second\n$");
}

}  // namespace
