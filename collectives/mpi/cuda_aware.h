// SPDX-License-Identifier: MIT
// Whether this process's MPI takes memory of GPUs in its calls. lockstep gives it none: messages
// between GPUs go through pinned memory of the host, or by NCCL. Any thread; no MPI call.
#pragma once
#include <optional>

namespace lockstep::collectives::mpi {

// As Open MPI says of itself; none where there is no MPI, or one that does not say.
std::optional<bool> cuda_aware();

}  // namespace lockstep::collectives::mpi
