// SPDX-License-Identifier: MIT
// What is done when a chief was killed, by who watched over it: its servers are told that the job
// failed, and so are the workers that ask at its address, for some seconds. Without it they would
// ask a chief that cannot come back for as long as their deadlines.
//
// One thread; takes `notice`. Says nothing and throws nothing: whoever is not reached ends by its
// deadline. In a build without gRPC, where there are no such jobs, it does nothing.
#pragma once
#include <chrono>
#include <string>

#include "strategies/grpc/server.h"
#include "strategies/parameter_server/cluster/cluster.h"

namespace lockstep::strategies {

// `serve`: how the chief listened; the address is the cluster's.
void tell_of_chiefs_death(const ClusterSpec& cluster, const std::string& why,
                          grpc::ServeOptions serve,
                          std::chrono::milliseconds notice = std::chrono::seconds(3)) noexcept;

}  // namespace lockstep::strategies
