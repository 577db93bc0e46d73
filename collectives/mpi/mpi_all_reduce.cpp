// SPDX-License-Identifier: MIT
#include "collectives/mpi/mpi_all_reduce.h"

#include <mpi.h>

#include <limits>

#include "engine/base/error.h"

namespace lockstep::collectives::mpi {
namespace {

MPI_Datatype type_of(engine::DType dtype) {
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
      engine::fail(engine::Code::kInvalid, "MPI_Allreduce knows no {}", engine::name(dtype));
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

}  // namespace

void all_reduce(std::byte* data, std::size_t count, engine::DType dtype, engine::ReduceOp op) {
  engine::require(count <= std::size_t(std::numeric_limits<int>::max()),
                  "MPI_Allreduce counts to 2147483647 elements, not {}", count);
  const int code = MPI_Allreduce(MPI_IN_PLACE, data, int(count), type_of(dtype), operation_of(op),
                                 MPI_COMM_WORLD);
  if (code != MPI_SUCCESS) engine::fail(engine::Code::kIo, "MPI_Allreduce failed: code {}", code);
}

}  // namespace lockstep::collectives::mpi
