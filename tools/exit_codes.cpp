// SPDX-License-Identifier: MIT
#include "tools/exit_codes.h"

#include <fmt/core.h>

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
      {"75", "another process was lost or late; the same command continues from the checkpoint"},
      {"128+N", "signal N ended the run after its step, which was saved if there is a folder"},
  };
  return kMeanings;
}

std::string message(const engine::Error& error) {
  if (error.option() == engine::Option::kNone) return error.what();
  return fmt::format("{} (--{})", error.what(), name(error.option()));
}

int exit_code_of_signal(int signal) {
  return 128 + signal;
}

}  // namespace lockstep::tools
