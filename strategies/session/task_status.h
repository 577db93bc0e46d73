// SPDX-License-Identifier: MIT
// What a living task of a parameter server job says of itself, asked over the network.
#pragma once
#include <string>

#include "engine/base/error.h"
#include "strategies/grpc/tls_files.h"

namespace lockstep::strategies {

// The JSON object of the task's status (shard_status.h for a server). Throws Error(kInvalid) for an
// address that is none, Error(kUnavailable) or Error(kTimeout) where nobody answers there, and
// Error(kCorrupt) where the answer is none; each text names the address. Any thread.
std::string task_status(const std::string& address, const grpc::TlsFiles& tls,
                        engine::Clock::time_point deadline);

}  // namespace lockstep::strategies
