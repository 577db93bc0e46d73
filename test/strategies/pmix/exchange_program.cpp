// SPDX-License-Identifier: MIT
// A program for exchange_test.py: processes of mpirun that exchange texts by PMIx.
//
// usage: exchange_program PART
//   texts      prints the texts of all processes, under two names
//   late       the last rank gives its text after the others have timed out once
//   missing    the last rank gives no text; the others print their errors
//   task       each process supervises a task and passes the texts on; rank 1's task dies once
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/base/error.h"
#include "strategies/pmix/exchange.h"
#include "strategies/session/supervisor.h"

namespace {

namespace strategies = lockstep::strategies;
using lockstep::engine::Clock;
using lockstep::engine::Error;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kLong{60};

// Prints a line with a single write.
void say(const std::string& line) {
  const std::string whole = line + "\n";
  std::fputs(whole.c_str(), stdout);
  std::fflush(stdout);
}

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string text_of(int rank, const std::string& name) {
  return fmt::format("{}-{}", name, rank);
}

void waits_in_vain(strategies::pmix::Exchange& job, milliseconds patience) {
  try {
    job.all("words", text_of(job.rank(), "words"), Clock::now() + patience);
    say("error none");
  } catch (const Error& error) {
    say(fmt::format("error {}: {}", lockstep::engine::name(error.code()), error.what()));
  }
}

int task(int start) {
  const std::string rank = std::getenv("RANK");
  say(fmt::format("task {} start {}: {}", rank, start, std::getenv("ALL")));
  if (rank == "1" && start == 0) raise(SIGKILL);
  return 0;
}

int run(char** argv) {
  const std::string part = argv[1];
  strategies::Supervisor supervisor;  // first: it handles signals
  const auto job = strategies::pmix::join();
  const int rank = job->rank(), last = job->size() - 1;
  const auto all = [&](const std::string& name) {
    return job->all(name, text_of(rank, name), Clock::now() + kLong);
  };
  if (part == "texts") {
    say(fmt::format("rank {} of {}, {} here: {}", rank, job->size(), job->host_size(),
                    joined(all("words"))));
    say(fmt::format("rank {} again: {}", rank, joined(all("others"))));
  } else if (part == "late") {
    if (rank != last) waits_in_vain(*job, milliseconds(300));
    all("waited in vain");
    say(fmt::format("rank {}: {}", rank, joined(all("words"))));
  } else if (part == "missing") {
    if (rank != last) waits_in_vain(*job, milliseconds(500));
    all("end");
  } else {
    return supervisor.run(
        argv, {.restarts = 2,
               .words = {{"RANK", fmt::format("{}", rank)}, {"ALL", joined(all("words"))}}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  try {
    if (const auto start = strategies::supervised()) return task(*start);
    return run(argv);
  } catch (const Error& error) {
    say(fmt::format("failed: {}", error.what()));
    return 3;
  }
}
