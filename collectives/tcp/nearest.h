// SPDX-License-Identifier: MIT
// The order in which the addresses of a peer are dialed. Any thread.
#pragma once
#include <string>
#include <vector>

#include "collectives/tcp/socket.h"

namespace lockstep::collectives::tcp {

// An address of this host; the first `bits` bits are those of its network.
struct OwnAddress {
  std::string address = {};  // "10.0.0.1", "fd00::1"
  int bits = 0;
};

// Returns the addresses of all interfaces that are up, loopback included.
std::vector<OwnAddress> own_addresses();

// Returns the endpoints in networks that this host is in first, and last those whose address this
// host has itself, such as that of a bridge which every host calls 172.17.0.1: they lead to this
// host and are a peer's only if it is here. Equal ones stay in their order.
std::vector<Endpoint> nearest_first(std::vector<Endpoint> endpoints,
                                    const std::vector<OwnAddress>& own);

}  // namespace lockstep::collectives::tcp
