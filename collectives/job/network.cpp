// SPDX-License-Identifier: MIT
#include "collectives/job/network.h"

#include "collectives/tcp/tcp_transport.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

void require_possible(const Network& network) {
  const std::string& transport = network.transport;
  engine::require(transport == "auto" || transport == "tcp" || transport == "mpi",
                  "unknown transport '{}'; known: auto, tcp, mpi", engine::brief(transport));
  const bool of_tcp = !network.interface.empty() || network.first_port != 0;
  engine::require(transport != "mpi" || !of_tcp,
                  "interface and ports are transport tcp's; MPI has options of its own for them");
  require_possible(TcpOptions{network.interface, network.first_port, network.last_port});
}

std::string_view transport_of(const Network& network) {
  return network.transport == "mpi" ? "mpi" : "tcp";
}

std::string sentence(const Network& network) {
  if (transport_of(network) == "mpi") return "messages of MPI (mpi), since that was asked for";
  std::string text = "own sockets (tcp)";
  if (!network.interface.empty()) text += " over " + network.interface;
  if (network.first_port != 0)
    text += fmt::format(", ports {}-{}", network.first_port, network.last_port);
  return text;
}

}  // namespace lockstep::collectives
