// SPDX-License-Identifier: MIT
// Bytes from the first process of a job to all, through the store that an agent of torchrun keeps
// at MASTER_ADDR:MASTER_PORT: the messages of PyTorch's TCPStore, 2.1 and later
// (torch/csrc/distributed/c10d). One thread. Nothing that is sent is secret.
#pragma once
#include <string>

#include "engine/base/error.h"

namespace lockstep::strategies::torch_store {

// Returns the `value` that the first process sets at `key`, in all processes; at most 4 KiB.
// `address`: "node1:29400". Throws Error(kTimeout) at the deadline, and Error(kIo) if the store
// does not answer as it should.
std::string from_first(const std::string& address, const std::string& key, bool first,
                       const std::string& value, engine::Clock::time_point deadline);

}  // namespace lockstep::strategies::torch_store
