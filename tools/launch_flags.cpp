// SPDX-License-Identifier: MIT
#include "tools/launch_flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"
#include "tools/bounds.h"

namespace lockstep::tools {
namespace {

constexpr std::int64_t kMostProcesses = 1 << 20;

}  // namespace

void LaunchFlags::publish() const {
  if (!rank && !ranks && rendezvous.empty()) return;
  engine::require(rank && ranks && !rendezvous.empty(),
                  "--rank, --ranks and --rendezvous belong together: which of how many processes "
                  "this is, and where process 0 can be reached, such as --rank 0 --ranks 2 "
                  "--rendezvous node1:29500");
  setenv("LOCKSTEP_RANK", std::to_string(*rank).c_str(), 1);
  setenv("LOCKSTEP_RANKS", std::to_string(*ranks).c_str(), 1);
  setenv("LOCKSTEP_RENDEZVOUS", rendezvous.c_str(), 1);
}

void warn_of_misspelled_variables(const engine::Log& log) {
  static const std::vector<std::string> kKnown{"RANK", "RANKS", "RENDEZVOUS", "SECRET",
                                               "SECRET_FILE"};
  constexpr std::string_view kPrefix = "LOCKSTEP_";
  for (char** each = environ; *each != nullptr; ++each) {
    std::string_view name = *each;
    if (!name.starts_with(kPrefix)) continue;
    name = name.substr(0, name.find('=')).substr(kPrefix.size());
    if (std::ranges::find(kKnown, name) != kKnown.end()) continue;
    if (const std::string nearest = engine::nearest(name, kKnown); !nearest.empty())
      log.warning("the variable {}{} has no effect; did you mean {}{}?", kPrefix,
                  engine::brief(name), kPrefix, nearest);
  }
}

void declare(CLI::App& app, LaunchFlags& f) {
  app.add_option("--rank", f.rank, "number of this process, if no launcher says it")
      ->check(whole_number(0, kMostProcesses - 1));
  if (app.get_option_no_throw("--ranks") == nullptr)
    app.add_option("--ranks", f.ranks, "number of processes, with --rank")
        ->check(whole_number(1, kMostProcesses));
  app.add_option("--rendezvous", f.rendezvous,
                 "address and port of process 0, such as node1:29500, with --rank");
  if (app.get_option_no_throw("--insecure") == nullptr)
    app.add_flag("--insecure", f.insecure,
                 "let processes of other hosts take part without a secret");
}

}  // namespace lockstep::tools
