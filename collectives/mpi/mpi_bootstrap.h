// SPDX-License-Identifier: MIT
// Names and places from MPI. MPI is used while a session opens and to end it, by one thread, with
// Iallgather and Test under our own deadline; training sends something through it only where the
// transport is mpi (mpi_transport.h). The seam is free
// of MPI's types; a build without MPI has `absent.cpp` behind it.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "collectives/bootstrap/bootstrap.h"

namespace lockstep::collectives::mpi {

bool available();       // built with MPI
std::string version();  // "Open MPI 4.1.4"; empty where not available

// What a launcher put into this process's environment (Open MPI, PMIx): readable before MPI starts.
struct Launch {
  bool present = false;
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
};
Launch launch();
// Throws Error(kInvalid) where a launcher that says nothing of the above (MPICH, Slurm without
// PMIx, torchrun) started several processes, which would each do the whole work alone. Names its
// variable and the ways that work.
void require_known_launcher();

// Returns a sentence that names the options by which Open MPI's mpirun notices a host that it
// cannot reach any more. It is empty where the environment or Open MPI's files set them.
std::string missing_keep_alive();

struct Options {
  std::chrono::milliseconds deadline{60000};
};
// Starts MPI (or joins an MPI that runs already) and finds hosts. Leaves the process with a message
// and exit code 75 when MPI_Init does not return in time: it cannot be cancelled. Throws
// Error(kInvalid) where MPI is not available, saying what would give it.
std::unique_ptr<Bootstrap> open(const Options& options);

// Of a communicator of a program that has called MPI_Init itself, and will end MPI itself: as an
// integer, so that no type of MPI stands here. Collective over that communicator, of which a
// duplicate is used and freed at the end.
struct Communicator {
  int handle = 0;  // MPI_Comm_c2f(communicator)
};
std::unique_ptr<Bootstrap> open(Communicator communicator, const Options& options);

}  // namespace lockstep::collectives::mpi
