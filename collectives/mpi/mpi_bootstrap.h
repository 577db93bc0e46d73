// SPDX-License-Identifier: MIT
// Bootstrap over MPI. One thread uses MPI while a session opens and to end it, by Iallgather and
// Test under our own deadline. Training sends through MPI only if the transport is mpi
// (mpi_transport.h). The interface has no MPI types; a build without MPI uses `absent.cpp`.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "collectives/bootstrap/bootstrap.h"

namespace lockstep::collectives::mpi {

bool available();       // whether this build has MPI
std::string version();  // "Open MPI 4.1.4"; empty if not available

// Returns a sentence that names the options by which Open MPI's mpirun notices an unreachable host.
// It is empty if the environment or Open MPI's files set them.
std::string missing_keep_alive();

struct Options {
  std::chrono::milliseconds deadline{60000};
};
// Starts MPI (or joins an MPI that is running) and finds hosts. If MPI_Init does not return in
// time, the process exits with a message and code 75, since MPI_Init cannot be canceled. Throws
// Error(kInvalid) if MPI is not available, and says how to get it.
std::unique_ptr<Bootstrap> open(const Options& options);

// Holds a communicator of a program that has called MPI_Init and will end MPI itself. It is an
// integer, so that no MPI type is needed here. `open` is collective over that communicator; it uses
// a duplicate and frees it at the end.
struct Communicator {
  int handle = 0;  // MPI_Comm_c2f(communicator)
};
std::unique_ptr<Bootstrap> open(Communicator communicator, const Options& options);

}  // namespace lockstep::collectives::mpi
