// SPDX-License-Identifier: MIT
// How much a command says on standard error: --quiet, --verbose. Results and errors are not
// affected.
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

  engine::Log::Level level() const;             // least level of the lines that are printed
  void written(const std::string& path) const;  // "wrote PATH", unless quiet
};

// Adds --quiet to the group "General".
CLI::Option* declare_quiet(CLI::App& app, Verbosity& verbosity);
// Adds --quiet and --verbose, for a command that has details to tell.
void declare(CLI::App& app, Verbosity& verbosity);

}  // namespace lockstep::tools
