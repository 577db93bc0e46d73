// SPDX-License-Identifier: MIT
#include "strategies/session/supervisor.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"

extern char** environ;

namespace lockstep::strategies {
namespace {

using engine::Code;

// "PROCESS:START": the supervisor's process, and the number of this start. A program that the task
// starts inherits the variable but has another parent.
constexpr std::string_view kWord = "LOCKSTEP_SUPERVISED";
constexpr const char* kSelf = "/proc/self/exe";
constexpr int kNoProgram = 127;  // like shells

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns the environment of a task for execve.
std::vector<std::string> environment_of(const Environment& words) {
  std::vector<std::string> result;
  const auto replaced = [&](std::string_view entry) {
    for (const auto& [name, value] : words)
      if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) return true;
    return false;
  };
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!replaced(*entry)) result.emplace_back(*entry);
  for (const auto& [name, value] : words) result.push_back(name + "=" + value);
  return result;
}

bool ends(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

std::optional<int> supervised() {
  const char* word = std::getenv(kWord.data());
  if (word == nullptr) return std::nullopt;
  const std::string_view text(word);
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || number(text.substr(0, colon)) != int(getppid()))
    return std::nullopt;
  return number(text.substr(colon + 1));
}

void name_task() {
  if (supervised()) prctl(PR_SET_NAME, program_invocation_short_name);
}

// Ignored signals stay ignored.
Supervisor::Supervisor(engine::Log log) : log_(std::move(log)) {
  sigemptyset(&taken_);
  sigaddset(&taken_, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU, SIGTSTP}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      sigaddset(&taken_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &taken_, &before_);
  // If SIGCHLD is ignored, a child's status is lost.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &child_before_);
}

Supervisor::~Supervisor() {
  if (task_ != 0) {
    kill(task_, SIGKILL);
    waitpid(task_, nullptr, 0);  // dies at once
  }
  sigaction(SIGCHLD, &child_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Supervisor::run(char** argv, const TaskOptions& task) {
  engine::require(task.restarts >= 0, "a task cannot be started again {} times", task.restarts);
  for (int number = 0;; ++number) {
    start(argv, task, number);
    const pid_t process = task_;
    const int status = wait();
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal = WTERMSIG(status);
    if (asked_to_end_ || signal == passed_on_) return kBySignal + signal;
    const std::string death = fmt::format("{} (pid {}) was killed by signal {} ({})", task.name,
                                          process, signal, strsignal(signal));
    if (number == task.restarts)
      engine::fail(
          Code::kPeerLost, "{}, and is not started again: {}", death,
          number == 0 ? task.why_never : fmt::format("all {} restarts are used up", number));
    log_.warning("{}: it is started again, {} of {} times", death, number + 1, task.restarts);
  }
}

void Supervisor::start(char** argv, const TaskOptions& task, int number) {
  Environment all = task.words;
  all.emplace_back(kWord, fmt::format("{}:{}", getpid(), number));
  std::vector<std::string> environment = environment_of(all);
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  const pid_t supervisor = getpid();
  const pid_t child = fork();
  if (child < 0)
    engine::fail(Code::kIo, "{} cannot be started: {}", task.name,
                 std::generic_category().message(errno));
  // The child may call only functions that are safe in a forked copy of one thread.
  if (child == 0) {
    // In its own group the task gets signals for our group only once, from this process.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(kNoProgram);  // it died before the prctl call
    sigaction(SIGCHLD, &child_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    execve(kSelf, argv, pointers.data());
    _exit(kNoProgram);
  }
  task_ = child;
}

int Supervisor::wait() {
  for (;;) {
    int status = 0;
    if (waitpid(task_, &status, WNOHANG) == task_) {
      task_ = 0;
      return status;
    }
    siginfo_t signal{};
    if (sigwaitinfo(&taken_, &signal) < 0) continue;  // interrupted by a foreign signal
    if (signal.si_signo != SIGCHLD) pass_on(signal.si_signo);
  }
}

void Supervisor::linger(std::chrono::milliseconds duration) {
  const auto until = engine::Clock::now() + duration;
  for (;;) {
    const auto left = std::chrono::nanoseconds(until - engine::Clock::now()).count();
    if (left <= 0) return;
    const timespec most{left / 1'000'000'000, left % 1'000'000'000};
    if (ends(sigtimedwait(&taken_, nullptr, &most))) return;
  }
}

void Supervisor::pass_on(int signal) {
  // The task is not a job of the terminal, so this process stops and continues it.
  if (signal == SIGTSTP) {
    kill(task_, SIGSTOP);
    raise(SIGSTOP);
    kill(task_, SIGCONT);
    return;
  }
  asked_to_end_ = asked_to_end_ || ends(signal);
  passed_on_ = signal;
  kill(task_, signal);
}

}  // namespace lockstep::strategies
