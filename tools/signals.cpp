// SPDX-License-Identifier: MIT
#include "tools/signals.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <utility>

#include "tools/exit_codes.h"

namespace lockstep::tools {
namespace {

std::atomic<int> word{0};  // static: a handler gets no such argument
std::atomic<const char*> before_answer{""}, first_answer{nullptr};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<const char*>::is_always_lock_free);

// Signals by which people, schedulers and launchers end a run.
constexpr std::pair<int, const char*> kEnding[] = {
    {SIGINT, "SIGINT"},   {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"},  {SIGQUIT, "SIGQUIT"},
    {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"}};

bool from_a_person(int signal) {
  return signal == SIGINT || signal == SIGQUIT;
}

// Prints a line with the signal's name, by calls that a handler may make and that do not block.
void print_answer(int signal) {
  const char* const answer = first_answer;
  pollfd output{STDERR_FILENO, POLLOUT, 0};
  const int error = errno;
  if (answer == nullptr || poll(&output, 1, 0) != 1) return;
  const char* name = "a signal";
  for (const auto& [number, its] : kEnding)
    if (number == signal) name = its;
  char line[200] = "";
  std::size_t length = 0;
  for (const char* text : {before_answer.load(), name, ": ", answer, "\n"})
    for (; *text != 0 && length < sizeof(line); ++text) line[length++] = *text;
  if (write(STDERR_FILENO, line, length) < 0) first_answer = nullptr;  // nobody reads it
  errno = error;
}

// Stores the signal. Simultaneous signals are handled in an undefined order, so a signal from a
// person replaces one that a launcher derived from it.
void remember(int signal) {
  int before = 0;
  const bool first = word.compare_exchange_strong(before, signal);
  if (!from_a_person(signal)) return;
  if (first) return print_answer(signal);
  if (from_a_person(before)) _exit(128 + signal);
  word = signal;
}

void end_at_once(int signal) {
  _exit(exit_code_of_signal(signal));
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

const std::atomic<int>& watch_signals(const char* answer) {
  before_answer = isatty(STDERR_FILENO) != 0 ? "\nlockstep: " : "lockstep: ";
  first_answer = answer;
  replace_handler(SIG_DFL, remember);
  replace_handler(end_at_once, remember);
  return word;
}

void end_at_signals() {
  replace_handler(SIG_DFL, end_at_once);
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
