// SPDX-License-Identifier: MIT
// Starts this program once more as its child, the task, and again when that is killed: so a task
// may die (out of memory, a defect, kill -9) and its place in the job does not. Signals go on to
// the task unless they are ignored; it does not outlive its supervisor, not even one that is
// killed.
//
//   if (const auto start = supervised()) return task(*start);
//   Supervisor supervisor;
//   return supervisor.run(argv, {.name = "server 0", .restarts = 3});
//
// A task that ends by itself is not started again, whatever its exit code: what it did not like it
// would not like again. Linux alone. One thread, the one that made it, which must not end before
// `run` returns; there are no other threads yet that would take signals.
#pragma once
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/log.h"

namespace lockstep::strategies {

// Words for the task's environment, beside those of this process.
using Environment = std::vector<std::pair<std::string, std::string>>;

// In a task: which start of it this is, from 0; nothing in a process without a supervisor.
std::optional<int> supervised();

// In a task: the process is called as its program in lists of processes, not "exe" after the link
// by which it was started.
void name_task();

struct TaskOptions {
  std::string name = "the task";                       // for what is said of it: "server 0"
  int restarts = 3;                                    // how often it is started again at the most
  std::string why_never = "no restart was asked for";  // said of its death where that is 0
  Environment words = {};
};

class Supervisor {
 public:
  explicit Supervisor(engine::Log log = engine::Log());  // from here on signals wait for `run`
  ~Supervisor();  // signals are what they were; ends the task where `run` threw
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // The task's exit code, when it has ended by itself or by a signal that was passed on (then 128
  // and the signal's number). `argv` ends with a null. Throws Error(kPeerLost) when it was killed
  // and all restarts are used up, Error(kInvalid) for restarts below 0, Error(kIo) where no process
  // can be had.
  int run(char** argv, const TaskOptions& task = {});
  // Once `run` has returned: waits so long, or until a signal comes that would end a task.
  void linger(std::chrono::milliseconds duration);

 private:
  void start(char** argv, const TaskOptions& task, int number);
  int wait();  // until the task has ended: its status
  void pass_on(int signal);

  const engine::Log log_;
  sigset_t taken_{}, before_{};
  struct sigaction child_before_ {};
  pid_t task_ = 0;  // 0: none lives
  bool asked_to_end_ = false;
  int passed_on_ = 0;  // the last signal, which may be one that the task does not handle
};

}  // namespace lockstep::strategies
