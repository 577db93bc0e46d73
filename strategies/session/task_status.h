// SPDX-License-Identifier: MIT
// The status of a running task of a parameter server job, requested over the network.
#pragma once
#include <string>

#include "engine/base/error.h"
#include "strategies/grpc/tls_files.h"

namespace lockstep::strategies {

// Returns the JSON object of the task's status (shard_status.h for a server). Throws
// Error(kInvalid) if the address is invalid, Error(kUnavailable) or Error(kTimeout) if no task
// answers, and Error(kCorrupt) if the answer is invalid. Each error names the address. Thread-safe.
std::string task_status(const std::string& address, const grpc::TlsFiles& tls,
                        engine::Clock::time_point deadline);

}  // namespace lockstep::strategies
