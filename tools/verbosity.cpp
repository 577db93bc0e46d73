// SPDX-License-Identifier: MIT
#include "tools/verbosity.h"

#include <CLI/CLI.hpp>

#include "tools/leaving.h"

namespace lockstep::tools {

engine::Log::Level Verbosity::level() const {
  using Level = engine::Log::Level;
  return quiet ? Level::kWarning : verbose ? Level::kDebug : Level::kInfo;
}

void Verbosity::written(const std::string& path) const {
  if (!quiet) tell("wrote " + path);
}

CLI::Option* declare_quiet(CLI::App& app, Verbosity& verbosity) {
  app.option_defaults()->group("General");
  return app.add_flag("-q,--quiet", verbosity.quiet, "print only results, warnings and errors");
}

void declare(CLI::App& app, Verbosity& verbosity) {
  auto* const quiet = declare_quiet(app, verbosity);
  app.add_flag("-v,--verbose", verbosity.verbose, "print details, such as the reasons of choices")
      ->excludes(quiet);
}

}  // namespace lockstep::tools
