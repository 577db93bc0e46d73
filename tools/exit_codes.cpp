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

std::string message(const engine::Error& error) {
  if (error.option() == engine::Option::kNone) return error.what();
  return fmt::format("{} (--{})", error.what(), name(error.option()));
}

int exit_code_of_signal(int signal) {
  return 128 + signal;
}

}  // namespace lockstep::tools
