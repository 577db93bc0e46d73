// SPDX-License-Identifier: MIT
// A program that runs MPI itself. It splits its processes into even and odd ranks, and lockstep
// sums in each part. MPI belongs to the program from its first line to its last.
#include <lockstep/lockstep.h>
#include <mpi.h>

#include <vector>

namespace {

// Sums the ranks of `part` with lockstep, and compares the result with MPI's.
bool sums(MPI_Comm part, int rank) try {
  lockstep::Session session(lockstep::MpiCommunicator{MPI_Comm_c2f(part)});
  auto communicator = lockstep::communicator(session);
  std::vector<double> values(1000, rank);
  communicator.all_reduce(std::span(values));
  int expected = 0;
  MPI_Allreduce(&rank, &expected, 1, MPI_INT, MPI_SUM, part);
  fmt::print("rank {} of the job is rank {} of {}, and the sum is {}\n", rank, communicator.rank(),
             communicator.size(), values[999]);
  return values[0] == expected && values[999] == expected;
} catch (const lockstep::Error& error) {
  fmt::print(stderr, "rank {}: {}\n", rank, error.what());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
  const bool right = sums(part, rank) && sums(part, rank);  // one session after another
  MPI_Comm_free(&part);
  int finalized = 0;
  MPI_Finalized(&finalized);  // MPI outlives the sessions
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return right && finalized == 0 ? 0 : 1;
}
