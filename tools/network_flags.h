// SPDX-License-Identifier: MIT
// The flags that say how messages travel between hosts: the same for all commands of a job.
#pragma once
#include <string>

#include "collectives/job/network.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct NetworkFlags {
  std::string transport = "auto", interface, ports;
  // The first that says something; empty: none does.
  std::string given() const;
  // Throws Error(kInvalid) for what cannot be on this host.
  collectives::Network network() const;
};

// Adds the flags to the parser, with what each may be; `flags` outlives the parser.
void declare(CLI::App& app, NetworkFlags& flags);

}  // namespace lockstep::tools
