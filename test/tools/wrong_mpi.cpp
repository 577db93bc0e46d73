// SPDX-License-Identifier: MIT
// A preloaded library that flips a bit in the results of MPI's collectives, by MPI's profiling
// interface. It tests that a comparison with MPI detects errors.
#include <mpi.h>

namespace {

int spoil(int result, void* data) {
  *static_cast<unsigned char*>(data) ^= 1;
  return result;
}

}  // namespace

int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm communicator) {
  return spoil(PMPI_Allreduce(from, to, count, type, op, communicator), to);
}

int MPI_Reduce_scatter_block(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm communicator) {
  return spoil(PMPI_Reduce_scatter_block(from, to, count, type, op, communicator), to);
}

int MPI_Allgather(const void* from, int sent, MPI_Datatype sent_type, void* to, int received,
                  MPI_Datatype type, MPI_Comm communicator) {
  return spoil(PMPI_Allgather(from, sent, sent_type, to, received, type, communicator), to);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm communicator) {
  return spoil(PMPI_Bcast(data, count, type, root, communicator), data);
}
