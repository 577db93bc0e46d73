// SPDX-License-Identifier: MIT
#include "tools/signals.h"

#include <unistd.h>

#include <csignal>

namespace lockstep::tools {
namespace {

std::atomic<int> word{0};  // a handler has no argument of ours
static_assert(std::atomic<int>::is_always_lock_free);

// Signals that come at once are handled in an order that nobody chose: of these the SIGINT counts,
// which came from a person, where the SIGTERM is what a launcher made of it.
void remember(int signal) {
  int before = 0;
  if (word.compare_exchange_strong(before, signal) || signal != SIGINT) return;
  if (before == SIGINT) _exit(128 + SIGINT);
  word = SIGINT;
}

void handle_with(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

const std::atomic<int>& watch_signals() {
  handle_with(remember);
  return word;
}

void unwatch_signals() {
  handle_with(SIG_DFL);
}

}  // namespace lockstep::tools
