// SPDX-License-Identifier: MIT
#include "tools/leaving.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "engine/base/brief.h"
#include "strategies/session/launch.h"
#include "tools/signals.h"

namespace lockstep::tools {
namespace {

// Time for the launcher to end this process; it may never do so.
constexpr std::chrono::seconds kLauncherTimeout{5};
// Time for the first process, which reports the same error.
constexpr std::chrono::seconds kTurn{2};
constexpr std::chrono::milliseconds kSurvivorsTurn{300};  // the same, after the loss of a rank

// Returns whether the job has one command line. mpirun can start several programs with flags of
// their own as one job; then each reports for itself.
bool one_command_line() {
  const char* contexts = std::getenv("OMPI_NUM_APP_CTX");
  return contexts == nullptr || std::string_view(contexts) == "1";
}

// Returns whether the launcher sent SIGTERM, within this time or before. It ends all processes at
// the first death, often before the others notice the loss. A thread of a library may take the
// signal, so the handler's result is checked as well.
bool wait_for_the_end(std::chrono::milliseconds timeout) {
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end, nullptr);
  const std::atomic<int>& signal = watch_signals();
  const auto until = engine::Clock::now() + timeout;
  while (signal != SIGTERM) {
    const timespec moment{0, 50'000'000};
    if (sigtimedwait(&end, nullptr, &moment) == SIGTERM) return true;
    if (engine::Clock::now() >= until) return false;
  }
  return true;
}

}  // namespace

void tell(std::string line) {
  // Quoted text must neither begin a line of its own nor control a terminal.
  std::replace_if(
      line.begin(), line.end(), [](char c) { return std::iscntrl(static_cast<unsigned char>(c)); },
      ' ');
  std::fputs((line + "\n").c_str(), stderr);
}

void complain(const std::string& text) {
  tell(fmt::format("lockstep: {}", engine::brief_words(text)));
}

void leave(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(code);
}

bool speaks_for_all(bool each_host) {
  const strategies::Launch launch = strategies::launch();
  return !launch.one_terminal() || !one_command_line() ||
         (each_host ? launch.local_rank : launch.rank) == 0;
}

void leave_together(int code, const std::string& text, bool each_host) {
  if (!speaks_for_all(each_host)) {
    wait_for_the_end(kLauncherTimeout);
    leave(code);
  }
  complain(text);
  leave(code);
}

void leave_in_turn(int code, const std::string& text) {
  const strategies::Launch launch = strategies::launch();
  const bool ended = launch.one_terminal() && launch.rank != 0 && wait_for_the_end(kTurn);
  if (!ended) complain(text);
  leave(code);
}

void leave_with_survivors(int code, const engine::Error& error) {
  const strategies::Launch launch = strategies::launch();
  const int first = std::ranges::find(error.ranks(), 0) == error.ranks().end() ? 0 : 1;
  // A rank that was late has nothing to add to what the others said of it.
  const bool late = std::ranges::find(error.ranks(), launch.rank) != error.ranks().end();
  const bool ended = launch.one_terminal() && launch.rank != first &&
                     wait_for_the_end(late ? kTurn : kSurvivorsTurn);
  if (!ended) complain(message(error));
  leave(code);
}

}  // namespace lockstep::tools
