// SPDX-License-Identifier: MIT
// Messages between hosts through MPI, for fabrics that MPI reaches best. All calls are point to
// point and nonblocking: Isend, Irecv, Test. A message travels in chunks of at most kChunk bytes,
// which Open MPI's tcp sends at once (its btl_tcp_eager_limit is 64 KiB). A rendezvous for each
// message would use less of the bandwidth.
//
// The transports of a process, one per rank, share their own MPI communicator and one progress
// function. The process makes one MPI call at a time, from whichever thread, so
// MPI_THREAD_SERIALIZED is enough. A program that runs MPI itself needs MPI_THREAD_MULTIPLE, since
// it may call MPI at the same time.
//
// MPI does not always see a peer's death. The executor's deadlines end the wait, and ranks tell
// each other why they stop. Requests that are incomplete when the transports end are given up. MPI
// may access their memory in any later call, so after a failure a process should exit.
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

// Throws Error(kIo) with MPI's text if `code`, returned by the MPI call `what`, is not success.
// Only builds with MPI define it.
void check(int code, std::string_view what);

// Holds the state that all MPI calls of this process share.
struct Calls {
  std::mutex mutex;                 // held during each MPI call of transports
  std::atomic<bool> failed{false};  // after a failure: do not finalize MPI
};

// Returns one transport for each rank of this process, in order. `communicator`: from MPI_Comm_c2f,
// of all processes of the job, for these transports alone; it outlives them. `process`: the process
// of each rank. `pairs`: {rank here, rank there} that exchange messages. Posts throw
// Error(kInvalid) if MPI has too few tags for the ranks and tags.
std::vector<std::unique_ptr<Transport>> connect(std::shared_ptr<Calls> calls, int communicator,
                                                const std::vector<int>& process,
                                                const std::vector<std::pair<int, int>>& pairs);

}  // namespace lockstep::collectives::mpi
