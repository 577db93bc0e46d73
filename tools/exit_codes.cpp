// SPDX-License-Identifier: MIT
#include "tools/exit_codes.h"

#include <fmt/core.h>

#include <csignal>

namespace lockstep::tools {

ExitCode exit_code(engine::Code code) {
  switch (code) {
    case engine::Code::kInvalid:
      return kUsage;
    case engine::Code::kCorrupt:
      return kBadData;
    case engine::Code::kIo:
      return kSystem;
    case engine::Code::kMemory:
      return kSystem;
    case engine::Code::kDevice:
      return kSystem;
    case engine::Code::kTimeout:
      return kTryAgain;
    case engine::Code::kPeerLost:
      return kTryAgain;
    case engine::Code::kUnavailable:
      return kTryAgain;
    case engine::Code::kAborted:
      return kDefect;
  }
  return kDefect;
}

std::span<const ExitMeaning> exit_meanings() {
  static constexpr ExitMeaning kMeanings[] = {
      {"0", "the command did all that it was asked to do"},
      {"64", "wrong flags, model or cluster, or a loss that is not finite"},
      {"65", "a file has invalid contents"},
      {"70", "an error that lockstep did not expect"},
      {"74",
       "a file is missing, inaccessible, or belongs to another run; or memory or a device was "
       "refused"},
      {"75",
       "start the same command again, which continues from the checkpoint: another process was "
       "lost "
       "or late, or SIGUSR1, SIGUSR2, SIGXCPU or SIGHUP ended the run after its step"},
      {"128+N", "signal N, which is SIGINT, SIGTERM or SIGQUIT, ended the run after its step"},
  };
  return kMeanings;
}

std::string message(const engine::Error& error) {
  if (error.option() == engine::Option::kNone) return error.what();
  return fmt::format("{} (--{})", error.what(), name(error.option()));
}

int exit_code_of_signal(int signal) {
  const bool preempted =
      signal == SIGHUP || signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGXCPU;
  return preempted ? kTryAgain : 128 + signal;
}

}  // namespace lockstep::tools
