// SPDX-License-Identifier: MIT
// Reports of the chief's end, killed or failed. The chief's supervisor tells the servers that the
// job failed. For some seconds it also answers workers that call the chief's address. Otherwise
// they would wait for a chief that cannot come back until their deadlines.
//
// Not thread-safe; takes `notice`. Logs and throws nothing: tasks that are not reached end by their
// deadlines. Does nothing in a build without gRPC, which has no such jobs.
#pragma once
#include <chrono>
#include <string>

#include "strategies/grpc/server.h"
#include "strategies/parameter_server/cluster/cluster.h"

namespace lockstep::strategies {

// `serve`: the options with which the chief served; the address is taken from the cluster.
void report_chiefs_end(const ClusterSpec& cluster, const std::string& why, grpc::ServeOptions serve,
                       std::chrono::milliseconds notice = std::chrono::seconds(3)) noexcept;

}  // namespace lockstep::strategies
