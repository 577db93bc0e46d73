// SPDX-License-Identifier: MIT
// Times MPI_Allreduce of any MPI library, in place.
//   usage: mpiexec -n N mpi_all_reduce FILE MIN MAX FACTOR
// rounds.h describes FILE.
#include <mpi.h>

#include "bench/peers/rounds.h"

int main(int count, char** words) {
  if (count != 5) return 2;
  MPI_Init(&count, &words);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  peers::Rounds(rank, ranks, words[1])
      .run(std::strtoul(words[2], nullptr, 10), std::strtoul(words[3], nullptr, 10),
           std::strtoul(words[4], nullptr, 10), [](float* data, std::size_t elements) {
             MPI_Allreduce(MPI_IN_PLACE, data, int(elements), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
           });
  MPI_Finalize();
}
