// SPDX-License-Identifier: MIT
#include "collectives/mpi/mpi_collectives.h"

#include <mpi.h>

#include <limits>

#include "engine/base/error.h"

namespace lockstep::collectives::mpi {
namespace {

MPI_Datatype mpi_type(engine::DType dtype) {
  switch (dtype) {
    case engine::DType::kFloat32:
      return MPI_FLOAT;
    case engine::DType::kFloat64:
      return MPI_DOUBLE;
    case engine::DType::kInt32:
      return MPI_INT32_T;
    case engine::DType::kInt64:
      return MPI_INT64_T;
    case engine::DType::kFloat16:
    case engine::DType::kBFloat16:
      engine::fail(engine::Code::kInvalid, "MPI cannot add {}", engine::name(dtype));
  }
  engine::broken("an element type that MPI is not told of");
}

MPI_Op operation_of(engine::ReduceOp op) {
  switch (op) {
    case engine::ReduceOp::kSum:
      return MPI_SUM;
    case engine::ReduceOp::kMin:
      return MPI_MIN;
    case engine::ReduceOp::kMax:
      return MPI_MAX;
    case engine::ReduceOp::kProduct:
      return MPI_PROD;
  }
  engine::broken("an operation that MPI is not told of");
}

// Returns a type of the same size, for elements that are moved unchanged.
MPI_Datatype bits_of(engine::DType dtype) {
  switch (engine::size_of(dtype)) {
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
  }
  engine::broken("an element whose size MPI is not told of");
}

int counted(std::size_t count, const char* name) {
  engine::require(count <= std::size_t(std::numeric_limits<int>::max()),
                  "{} counts to 2147483647 elements, not {}", name, count);
  return int(count);
}

void require_success(int code, const char* name) {
  if (code != MPI_SUCCESS) engine::fail(engine::Code::kIo, "{} failed: code {}", name, code);
}

}  // namespace

void all_reduce(std::byte* data, std::size_t count, engine::DType dtype, engine::ReduceOp op) {
  const char* const name = "MPI_Allreduce";
  require_success(MPI_Allreduce(MPI_IN_PLACE, data, counted(count, name), mpi_type(dtype),
                                operation_of(op), MPI_COMM_WORLD),
                  name);
}

void reduce_scatter(std::byte* data, std::size_t part, engine::DType dtype, engine::ReduceOp op) {
  const char* const name = "MPI_Reduce_scatter_block";
  require_success(MPI_Reduce_scatter_block(MPI_IN_PLACE, data, counted(part, name), mpi_type(dtype),
                                           operation_of(op), MPI_COMM_WORLD),
                  name);
}

void all_gather(std::byte* data, std::size_t part, engine::DType dtype) {
  const char* const name = "MPI_Allgather";
  const MPI_Datatype bits = bits_of(dtype);
  require_success(
      MPI_Allgather(MPI_IN_PLACE, 0, bits, data, counted(part, name), bits, MPI_COMM_WORLD), name);
}

void broadcast(std::byte* data, std::size_t count, engine::DType dtype) {
  const char* const name = "MPI_Bcast";
  require_success(MPI_Bcast(data, counted(count, name), bits_of(dtype), 0, MPI_COMM_WORLD), name);
}

}  // namespace lockstep::collectives::mpi
