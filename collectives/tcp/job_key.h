// SPDX-License-Identifier: MIT
// Name of a job and the secret that its ranks share and nobody else knows. Plain values.
#pragma once
#include <string>

namespace lockstep::collectives {

struct JobKey {
  std::string job = {};     // names the job; public
  std::string secret = {};  // at least 32 bytes
};

// Throws Error(kInvalid) for a secret that is too short.
void require_possible(const JobKey& key);

// Returns 256 random bits as 64 hexadecimal digits. Throws Error(kIo) if the system has none.
std::string random_secret();

}  // namespace lockstep::collectives
