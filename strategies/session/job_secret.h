// SPDX-License-Identifier: MIT
// The secret by which the processes of a job know each other if no launcher can distribute one. The
// user gives it to all of them. Not thread-safe, since it changes the environment.
#pragma once
#include <string>

#include "collectives/tcp/job_key.h"
#include "strategies/session/launch.h"

namespace lockstep::strategies {

// Returns the secret from the file that LOCKSTEP_SECRET_FILE names, else from LOCKSTEP_SECRET,
// whose value it erases from the memory of this process. Empty if there is neither. Throws
// Error(kIo) if the file cannot be read, and Error(kInvalid) for a secret of less than 32
// characters and for one that an earlier call erased.
std::string take_job_secret();

// Returns the key by which the processes of a launch meet. Throws what `take_job_secret` throws,
// and Error(kInvalid) if they may be on several hosts and have no secret, unless `insecure`.
collectives::JobKey job_key(const Launch& launch, bool insecure);

}  // namespace lockstep::strategies
