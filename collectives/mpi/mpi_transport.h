// SPDX-License-Identifier: MIT
// Messages between hosts through MPI, for fabrics where MPI is the way to the hardware. Point to
// point and never blocking: Isend, Irecv, Test. A message travels in chunks of at most kChunk
// bytes, which Open MPI's tcp sends at once (its btl_tcp_eager_limit is 64 KiB): with a rendezvous
// for each message the wire is less full (collectives/README.md).
//
// The transports of a process, one a rank, share a communicator of MPI of their own and one
// progress function. Calls of MPI of this process are made one at a time, whichever thread they
// come from, so that MPI_THREAD_SERIALIZED is enough.
//
// A peer's death is not always seen by MPI: the deadlines of the executor are what ends the wait,
// and ranks tell each other why they stop. What was posted and is not through when the transports
// end is given up: MPI may come back to that memory whenever it is called again, so after a failure
// a process should leave.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/run/transport.h"

namespace lockstep::collectives::mpi {

inline constexpr std::size_t kChunk = std::size_t(60) << 10;

// Throws Error(kIo) in MPI's words where `code`, of a call of MPI, is not that of success; `what`:
// which call. Only where this was built with MPI.
void check(int code, std::string_view what);

// What all that calls MPI in this process shares.
struct Calls {
  std::mutex mutex;                 // held during each call that transports make of MPI
  std::atomic<bool> failed{false};  // something was given up: MPI cannot be ended orderly
};

// `communicator`: as MPI_Comm_c2f gives it, of all processes of the job, for these transports
// alone; it outlives them. `process`: of each rank. `pairs`: {rank here, rank there} that talk.
// Element i is for the i-th rank of this process. Posts throw Error(kInvalid) where ranks and tags
// are more than MPI's tags can tell apart.
std::vector<std::unique_ptr<Transport>> connect(std::shared_ptr<Calls> calls, int communicator,
                                                const std::vector<int>& process,
                                                const std::vector<std::pair<int, int>>& pairs);

}  // namespace lockstep::collectives::mpi
