// SPDX-License-Identifier: MIT
#include "tools/signals.h"

#include <unistd.h>

#include <csignal>

namespace lockstep::tools {
namespace {

std::atomic<int> word{0};  // a handler has no argument of ours
static_assert(std::atomic<int>::is_always_lock_free);

// Those by which people, schedulers and launchers end a run.
constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU};

bool from_a_person(int signal) {
  return signal == SIGINT || signal == SIGQUIT;
}

// Signals that come at once are handled in an order that nobody chose. One from a person counts
// before the one that a launcher makes of it.
void remember(int signal) {
  int before = 0;
  if (word.compare_exchange_strong(before, signal) || !from_a_person(signal)) return;
  if (from_a_person(before)) _exit(128 + signal);
  word = signal;
}

// Signals that are ignored, as after nohup, and those with a handler of somebody else's stay so.
void replace_handler(void (*from)(int), void (*to)(int)) {
  for (const int signal : kEnding) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != from) continue;
    action = {};
    action.sa_handler = to;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

const std::atomic<int>& watch_signals() {
  replace_handler(SIG_DFL, remember);
  return word;
}

void unwatch_signals() {
  replace_handler(remember, SIG_DFL);
}

}  // namespace lockstep::tools
