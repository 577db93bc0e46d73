// SPDX-License-Identifier: MIT
#include "tools/signals.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <utility>

#include "tools/exit_codes.h"
#include "tools/leaving.h"

namespace lockstep::tools {
namespace {

std::atomic<int> word{0};  // static: a handler gets no such argument
static_assert(std::atomic<int>::is_always_lock_free);

constexpr std::chrono::milliseconds kLook{50};     // between two looks at the word
constexpr std::chrono::milliseconds kMoment{300};  // a launcher kills a second after its signal

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

const std::atomic<int>& watch_signals() {
  replace_handler(SIG_DFL, remember);
  replace_handler(end_at_once, remember);
  return word;
}

SignalAnswer::SignalAnswer(const std::atomic<int>& signal, std::string answer)
    : thread_([&signal, answer = std::move(answer)](const std::stop_token& stop) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any never;  // only a stop ends a wait early
        const auto pause = [&](std::chrono::milliseconds time) {
          never.wait_for(lock, stop, time, [] { return false; });
        };
        while (!stop.stop_requested() && signal == 0) pause(kLook);
        pause(kMoment);
        if (!stop.stop_requested()) complain(fmt::format("{}: {}", signal_name(signal), answer));
      }) {}

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
