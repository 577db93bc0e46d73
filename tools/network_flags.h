// SPDX-License-Identifier: MIT
// Flags of the network between hosts and of the launch, the same for all commands of a job.
#pragma once
#include <string>

#include "collectives/job/network.h"
#include "tools/launch_flags.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct NetworkFlags {
  std::string transport = "auto", interface, ports;
  LaunchFlags launch;
  // Returns the first flag that is not the default; empty if there is none.
  std::string given() const;
  // Returns the network. Throws Error(kInvalid) for settings that are impossible on this host.
  collectives::Network network() const;
};

// Adds the flags to the parser, with their allowed values; `flags` outlives the parser.
void declare(CLI::App& app, NetworkFlags& flags);

}  // namespace lockstep::tools
