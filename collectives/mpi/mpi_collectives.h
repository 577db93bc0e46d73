// SPDX-License-Identifier: MIT
// MPI's own collectives, for comparison: what a program without lockstep would call. They block
// inside MPI, where no deadline of ours applies: keep a Watchdog beside them. Call them on the
// thread that opened MPI's bootstrap, while that lives. They are collective over all processes of
// the job and work in place.
//
// All throw Error(kInvalid) if MPI is not available or cannot count the elements (above 2^31 - 1),
// and Error(kIo) if MPI fails. Reductions throw Error(kInvalid) for 16-bit elements, which MPI
// cannot add.
#pragma once
#include <cstddef>

#include "engine/ops/reduce.h"

namespace lockstep::collectives::mpi {

// Reduces `count` elements over all processes.
void all_reduce(std::byte* data, std::size_t count, engine::DType dtype, engine::ReduceOp op);

// Both take one part of `part` elements per process, consecutively. `reduce_scatter` takes all
// parts from each process and leaves the result of its own part in the first. `all_gather` takes a
// process's own part and fills in the others.
void reduce_scatter(std::byte* data, std::size_t part, engine::DType dtype, engine::ReduceOp op);
void all_gather(std::byte* data, std::size_t part, engine::DType dtype);

// Sends `count` elements of process 0 to all.
void broadcast(std::byte* data, std::size_t count, engine::DType dtype);

}  // namespace lockstep::collectives::mpi
