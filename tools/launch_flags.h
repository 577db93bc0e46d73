// SPDX-License-Identifier: MIT
// Flags of a job whose processes a user starts one by one, the same for all commands of a job.
#pragma once
#include <optional>
#include <string>

#include "engine/base/log.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct LaunchFlags {
  std::optional<int> rank, ranks;
  std::string rendezvous;
  bool insecure = false;
  // Sets the variables that describe the launch (strategies/session/launch.h), if the flags are
  // given. Throws Error(kInvalid) if one of them is missing. Call it before threads exist.
  void publish() const;
};

// Warns of each variable whose name looks like a misspelled one of the launch.
void warn_of_misspelled_variables(const engine::Log& log);

// Adds the flags to the parser, except those that the command has already; `flags` outlives the
// parser.
void declare(CLI::App& app, LaunchFlags& flags);

}  // namespace lockstep::tools
