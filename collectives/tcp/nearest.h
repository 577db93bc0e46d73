// SPDX-License-Identifier: MIT
// Order in which the addresses of a peer are dialed. Thread-safe.
#pragma once
#include <string>
#include <vector>

#include "collectives/tcp/socket.h"

namespace lockstep::collectives::tcp {

// Holds an address of this host; its first `bits` bits are those of its network.
struct OwnAddress {
  std::string address = {};  // "10.0.0.1", "fd00::1"
  int bits = 0;
};

// Returns the addresses of all interfaces that are up, loopback included.
std::vector<OwnAddress> own_addresses();

// Returns the endpoints in networks of this host first. Endpoints whose address this host has
// itself come last, such as that of a bridge which every host calls 172.17.0.1. They lead to this
// host and are a peer's only if it is here. Equal ones keep their order.
std::vector<Endpoint> nearest_first(std::vector<Endpoint> endpoints,
                                    const std::vector<OwnAddress>& own);

}  // namespace lockstep::collectives::tcp
