// SPDX-License-Identifier: MIT
#include "tools/network_flags.h"

#include <CLI/CLI.hpp>
#include <tuple>

#include "tools/bounds.h"

namespace lockstep::tools {

std::string NetworkFlags::given() const {
  if (transport != "auto") return "--transport";
  if (!interface.empty()) return "--interface";
  return ports.empty() ? "" : "--ports";
}

collectives::Network NetworkFlags::network() const {
  collectives::Network network{.transport = transport, .interface = interface};
  if (!ports.empty()) std::tie(network.first_port, network.last_port) = *ports_of(ports);
  collectives::require_possible(network);
  return network;
}

void declare(CLI::App& app, NetworkFlags& f) {
  app.add_option("--transport", f.transport,
                 "transport between hosts: sockets (tcp, the same as auto) or MPI messages (mpi)")
      ->check(one_of({"auto", "tcp", "mpi"}))
      ->capture_default_str();
  app.add_option("--interface", f.interface,
                 "network interface between hosts, such as eth1 (default: any)");
  app.add_option(
         "--ports", f.ports,
         "ports on which a process listens for other hosts while the job starts (default: any)")
      ->check(port_range());
  app.option_defaults()->group("Launch");
  declare(app, f.launch);
}

}  // namespace lockstep::tools
