// SPDX-License-Identifier: MIT
// Tests which process of a job reports an error that all of them meet, and which process waits.
#include "tools/leaving.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "tools/signals.h"

namespace lockstep::tools {
namespace leaving_test {

// Makes this process one of a job of two.
void be_rank(const char* rank) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    setenv(name, rank, 1);
  }
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
}

// Expects the output of a process that ends with code 5, as a pattern. It runs in a child process.
void expect_said(const char* pattern, const char* rank, bool ended_before) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        be_rank(rank);
        watch_signals();
        if (ended_before) raise(SIGTERM);
        leave_in_turn(5, "the matter");
      },
      testing::ExitedWithCode(5), pattern);
}

TEST(Leaving, TheFirstSpeaks) {
  expect_said("lockstep: the matter", "0", false);
  expect_said("lockstep: the matter", "0", true);
}

TEST(Leaving, AnotherSpeaksWhereNobodyEndsIt) {
  expect_said("lockstep: the matter", "1", false);
}

// Otherwise it would wait for a second signal, which does not come before the launcher's timeout.
TEST(Leaving, AnotherThatTheLauncherEndedBeforeItFoundTheErrorIsSilent) {
  expect_said("^$", "1", true);
}

}  // namespace leaving_test
}  // namespace lockstep::tools
