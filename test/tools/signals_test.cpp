// SPDX-License-Identifier: MIT
// Tests the signal value that handlers store. Each case runs in its own process, because handlers
// are global to a process.
#include "tools/signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace lockstep::tools {
namespace signals_test {

// Exits with the stored value; each signal is handled before the next one comes.
[[noreturn]] void end_after(std::initializer_list<int> signals) {
  const std::atomic<int>& word = watch_signals();
  for (const int signal : signals) raise(signal);
  std::_Exit(word);
}

// Exits with the stored value after simultaneous signals: they are blocked until the last one is
// pending.
[[noreturn]] void end_after_all_of(std::initializer_list<int> signals) {
  const std::atomic<int>& word = watch_signals();
  sigset_t held, before;
  sigfillset(&held);
  pthread_sigmask(SIG_SETMASK, &held, &before);
  for (const int signal : signals) raise(signal);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::_Exit(word);
}

TEST(Signals, TheWordIsTheOneThatCame) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(end_after({}), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(end_after({SIGINT}), testing::ExitedWithCode(SIGINT), "");
  EXPECT_EXIT(end_after({SIGTERM}), testing::ExitedWithCode(SIGTERM), "");
  EXPECT_EXIT(end_after({SIGTERM, SIGTERM, SIGTERM}), testing::ExitedWithCode(SIGTERM), "");
  for (const int signal : {SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(end_after({signal}), testing::ExitedWithCode(signal), "");
}

TEST(Signals, TheFirstOfALauncherCounts) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(end_after({SIGUSR1, SIGTERM, SIGUSR1}), testing::ExitedWithCode(SIGUSR1), "");
  EXPECT_EXIT(end_after({SIGXCPU, SIGXCPU}), testing::ExitedWithCode(SIGXCPU), "");
}

TEST(Signals, IgnoredOnesStayIgnored) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(
        {
          std::signal(signal, SIG_IGN);
          watch_signals();
          raise(signal);
          unwatch_signals();
          raise(signal);
          std::_Exit(watch_signals());
        },
        testing::ExitedWithCode(0), "");
}

TEST(Signals, OnceTheyAreNotWatchedTheyEndTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    EXPECT_EXIT(
        {
          watch_signals();
          unwatch_signals();
          raise(signal);
        },
        testing::KilledBySignal(signal), "");
}

// A terminal sends SIGINT to a launcher and its processes; the launcher then sends SIGTERM.
TEST(Signals, OfBothTheWordIsSigintInWhateverOrder) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(end_after({SIGINT, SIGTERM}), testing::ExitedWithCode(SIGINT), "");
  EXPECT_EXIT(end_after({SIGTERM, SIGINT}), testing::ExitedWithCode(SIGINT), "");
  EXPECT_EXIT(end_after_all_of({SIGINT, SIGTERM}), testing::ExitedWithCode(SIGINT), "");
}

TEST(Signals, TheSecondSigintEndsTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(end_after({SIGINT, SIGINT}), testing::ExitedWithCode(128 + SIGINT), "");
  EXPECT_EXIT(end_after({SIGTERM, SIGINT, SIGINT}), testing::ExitedWithCode(128 + SIGINT), "");
  EXPECT_EXIT(end_after({SIGINT, SIGQUIT}), testing::ExitedWithCode(128 + SIGQUIT), "");
}

}  // namespace signals_test
}  // namespace lockstep::tools
