// SPDX-License-Identifier: MIT
// Bytes from the first process of a job to all, through the process manager of MPICH, Intel MPI or
// `srun --mpi=pmi2`: version 1.1 of PMI's text messages on the descriptor PMI_FD (MPICH,
// src/pmi/simple). One thread. A process does it once, since the exchange ends with PMI's
// finalization, after which the manager no longer takes an early end for a failure.
#pragma once
#include <string>

#include "engine/base/error.h"

namespace lockstep::strategies::pmi {

// Returns `text` of the first process, in all of them; at most 1 KiB, without blanks. `file`:
// PMI_FD. Collective. Throws Error(kTimeout) at the deadline, and Error(kIo) if the manager does
// not answer as it should.
std::string from_first(int file, bool first, const std::string& text,
                       engine::Clock::time_point deadline);

}  // namespace lockstep::strategies::pmi
