// SPDX-License-Identifier: MIT
// A supervisor that starts this program again as its child, the task. It restarts the task if that
// is killed (out of memory, a defect, kill -9). The place in the job persists. Signals are
// forwarded to the task unless they are ignored. The task never outlives its supervisor, even if
// that is killed.
//
//   if (const auto start = supervised()) return task(*start);
//   Supervisor supervisor;
//   return supervisor.run(argv, {.name = "server 0", .restarts = 3});
//
// A task that exits by itself is not restarted, whatever its exit code, since it would fail again.
// Linux only. One thread makes and runs it and must not end before `run` returns. No other threads
// that would receive signals may exist yet.
#pragma once
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/log.h"

namespace lockstep::strategies {

// Variables that are added to the task's environment.
using Environment = std::vector<std::pair<std::string, std::string>>;

// The exit code of a task that signal N ended is kBySignal + N, as in shells.
inline constexpr int kBySignal = 128;
inline bool ended_by_signal(int code) {
  return code > kBySignal && code < kBySignal + NSIG;
}

// Returns which start of the task this process is, from 0; nothing in a process without a
// supervisor.
std::optional<int> supervised();

// Gives a task's process its program's name in process lists, instead of "exe", the name of the
// link by which it was started.
void name_task();

struct TaskOptions {
  std::string name = "the task";                       // in messages: "server 0"
  int restarts = 3;                                    // maximum number of restarts
  std::string why_never = "no restart was asked for";  // in the message if `restarts` is 0
  Environment words = {};
};

class Supervisor {
 public:
  explicit Supervisor(engine::Log log = engine::Log());  // blocks signals until `run`
  // Restores signal handling; ends the task if `run` threw.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Runs the task. Returns its exit code, or 128 plus the signal's number if a forwarded signal
  // ended it. `argv` ends with a null. Throws Error(kPeerLost) if it was killed and all restarts
  // are used up, Error(kInvalid) for negative restarts, and Error(kIo) if no process can be
  // started.
  int run(char** argv, const TaskOptions& task = {});
  // Waits for `duration`, or until a signal arrives that would end a task. Only after `run` has
  // returned.
  void linger(std::chrono::milliseconds duration);

 private:
  void start(char** argv, const TaskOptions& task, int number);
  int wait();  // until the task has ended; returns its status
  void pass_on(int signal);

  const engine::Log log_;
  sigset_t taken_{}, before_{};
  struct sigaction child_before_ {};
  pid_t task_ = 0;  // 0: none lives
  bool asked_to_end_ = false;
  // The last forwarded signal, which the task may not handle.
  int passed_on_ = 0;
};

}  // namespace lockstep::strategies
