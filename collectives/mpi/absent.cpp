// SPDX-License-Identifier: MIT
#include "collectives/mpi/mpi_bootstrap.h"
#include "collectives/mpi/mpi_collectives.h"
#include "collectives/mpi/mpi_transport.h"
#include "engine/base/error.h"

namespace lockstep::collectives::mpi {

bool available() {
  return false;
}

std::string version() {
  return {};
}

namespace {

[[noreturn]] void fail_absent() {
  engine::fail(
      engine::Code::kInvalid,
      "this build of lockstep has no MPI: install Open MPI (Debian: libopenmpi-dev), then run "
      "meson setup --reconfigure -Dmpi=enabled");
}

}  // namespace

std::unique_ptr<Bootstrap> open(const Options&) {
  fail_absent();
}

std::vector<std::unique_ptr<Transport>> connect(std::shared_ptr<Calls>, int,
                                                const std::vector<int>&,
                                                const std::vector<std::pair<int, int>>&) {
  fail_absent();
}

std::unique_ptr<Bootstrap> open(Communicator, const Options&) {
  fail_absent();
}

void all_reduce(std::byte*, std::size_t, engine::DType, engine::ReduceOp) {
  fail_absent();
}

void reduce_scatter(std::byte*, std::size_t, engine::DType, engine::ReduceOp) {
  fail_absent();
}

void all_gather(std::byte*, std::size_t, engine::DType) {
  fail_absent();
}

void broadcast(std::byte*, std::size_t, engine::DType) {
  fail_absent();
}

}  // namespace lockstep::collectives::mpi
