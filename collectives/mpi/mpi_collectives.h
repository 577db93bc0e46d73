// SPDX-License-Identifier: MIT
// MPI's collectives themselves, for comparison: what a program without lockstep would call. They
// wait inside MPI, where no deadline of ours reaches: keep a Watchdog beside them. Of the thread
// that opened MPI's bootstrap, which must live; collective over all processes of the job. All are
// in place.
//
// Throw Error(kInvalid) for more elements than MPI counts (2^31 - 1), where MPI is not available,
// and those that reduce for elements of 16 bits, which MPI cannot add; Error(kIo) for what MPI
// refuses.
#pragma once
#include <cstddef>

#include "engine/ops/reduce.h"

namespace lockstep::collectives::mpi {

// On `count` elements of each process.
void all_reduce(std::byte* data, std::size_t count, engine::DType dtype, engine::ReduceOp op);

// Parts of `part` elements, one for each process, one behind the other: everybody has all of them,
// and keeps in the first the sums of his own; or has his own, and gets the others.
void reduce_scatter(std::byte* data, std::size_t part, engine::DType dtype, engine::ReduceOp op);
void all_gather(std::byte* data, std::size_t part, engine::DType dtype);

// `count` elements of process 0 to all.
void broadcast(std::byte* data, std::size_t count, engine::DType dtype);

}  // namespace lockstep::collectives::mpi
