// SPDX-License-Identifier: MIT
// MPI_Allreduce itself, for comparison: what a program without lockstep would call. It waits inside
// MPI, where no deadline of ours reaches: keep a Watchdog beside it. Of the thread that opened
// MPI's bootstrap, which must live; collective over all processes of the job.
#pragma once
#include <cstddef>

#include "engine/ops/reduce.h"

namespace lockstep::collectives::mpi {

// In place, on `count` elements. Throws Error(kInvalid) for more elements than MPI counts (2^31 -
// 1), for those of 16 bits, which MPI does not know, and where MPI is not available; Error(kIo) for
// what MPI refuses.
void all_reduce(std::byte* data, std::size_t count, engine::DType dtype, engine::ReduceOp op);

}  // namespace lockstep::collectives::mpi
