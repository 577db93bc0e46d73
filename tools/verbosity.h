// SPDX-License-Identifier: MIT
// The amount of output on standard error: --quiet, --verbose. Results and errors are not affected.
#pragma once
#include <string>

#include "engine/base/log.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::tools {

struct Verbosity {
  bool quiet = false, verbose = false;

  engine::Log::Level level() const;             // lowest level that is printed
  void written(const std::string& path) const;  // prints "wrote PATH", unless quiet
};

// Adds --quiet to the group "General".
CLI::Option* declare_quiet(CLI::App& app, Verbosity& verbosity);
// Adds --quiet and --verbose, for a command with details.
void declare(CLI::App& app, Verbosity& verbosity);

}  // namespace lockstep::tools
