// SPDX-License-Identifier: MIT
#include "tools/signals.h"

#include <unistd.h>

#include <csignal>

namespace lockstep::tools {
namespace {

std::atomic<int> first_signal{0};  // a handler has no argument of ours
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) return;
  if (signal == SIGINT && none == SIGINT) _exit(128 + SIGINT);
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
  return first_signal;
}

void unwatch_signals() {
  handle_with(SIG_DFL);
}

}  // namespace lockstep::tools
