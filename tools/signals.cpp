// SPDX-License-Identifier: MIT
#include "tools/signals.h"

#include <unistd.h>

#include <csignal>
#include <utility>

namespace lockstep::tools {
namespace {

std::atomic<int> word{0};  // static: a handler gets no such argument
static_assert(std::atomic<int>::is_always_lock_free);

// Signals by which people, schedulers and launchers end a run.
constexpr std::pair<int, const char*> kEnding[] = {
    {SIGINT, "SIGINT"},   {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"},  {SIGQUIT, "SIGQUIT"},
    {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"}};

bool from_a_person(int signal) {
  return signal == SIGINT || signal == SIGQUIT;
}

// Stores the signal. Simultaneous signals are handled in an undefined order, so a signal from a
// person replaces one that a launcher derived from it.
void remember(int signal) {
  int before = 0;
  if (word.compare_exchange_strong(before, signal) || !from_a_person(signal)) return;
  if (from_a_person(before)) _exit(128 + signal);
  word = signal;
}

// Replaces the handlers of the ending signals that have the handler `from`. Ignored signals, as
// after nohup, and handlers of others stay.
void replace_handler(void (*from)(int), void (*to)(int)) {
  for (const auto& [signal, name] : kEnding) {
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

std::string signal_name(int signal) {
  for (const auto& [number, name] : kEnding)
    if (number == signal) return name;
  return "a signal";
}

void unwatch_signals() {
  replace_handler(remember, SIG_DFL);
}

}  // namespace lockstep::tools
