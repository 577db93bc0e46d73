// SPDX-License-Identifier: MIT
// Reports whether this process's MPI accepts GPU memory in its calls. lockstep passes none:
// messages between GPUs go through pinned host memory or NCCL. Thread-safe.
#pragma once
#include <optional>

namespace lockstep::collectives::mpi {

// Returns Open MPI's own answer, or nullopt if there is no MPI or if it does not say.
std::optional<bool> cuda_aware();

}  // namespace lockstep::collectives::mpi
