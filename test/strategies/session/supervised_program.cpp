// SPDX-License-Identifier: MIT
// A program for supervisor_test.py: a supervisor whose task prints "task PROCESS START WORD" and
// then does what PART says.
//
// usage: supervised_program RESTARTS PART, where PART is wait, exit:CODE, abort or signals
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/base/error.h"
#include "strategies/session/supervisor.h"

namespace {

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int task(int start, const std::string& part) {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&all, signal);
  if (part == "signals") pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const char* word = std::getenv("WORD");
  say(fmt::format("task {} {} {}", getpid(), start, word == nullptr ? "none" : word));
  if (part.starts_with("exit:")) return std::atoi(part.c_str() + 5);
  if (part == "abort") std::abort();
  // The task prints each signal. The first SIGTERM ends it with an exit code of its own.
  for (int came = 0; part == "signals";) {
    sigwait(&all, &came);
    say(fmt::format("signal {}", came));
    if (came == SIGTERM) return 9;
  }
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  namespace strategies = lockstep::strategies;
  if (argc != 3) return 64;
  try {
    if (const auto start = strategies::supervised()) return task(*start, argv[2]);
    strategies::Supervisor supervisor;
    say(fmt::format("supervisor {}", getpid()));
    return supervisor.run(argv, {.name = "worker 1",
                                 .restarts = std::atoi(argv[1]),
                                 .words = {{"WORD", "of the supervisor"}}});
  } catch (const lockstep::engine::Error& error) {
    fmt::print(stderr, "error {}: {}\n", lockstep::engine::name(error.code()), error.what());
    return 3;
  }
}
