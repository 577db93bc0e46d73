// SPDX-License-Identifier: MIT
#include "collectives/mpi/mpi_bootstrap.h"
#include "engine/base/error.h"

namespace lockstep::collectives::mpi {

bool available() {
  return false;
}

std::string version() {
  return {};
}

std::unique_ptr<Bootstrap> open(const Options&) {
  engine::fail(
      engine::Code::kInvalid,
      "this build of lockstep has no MPI: install Open MPI (Debian: libopenmpi-dev), then run "
      "meson setup --reconfigure -Dmpi=enabled");
}

}  // namespace lockstep::collectives::mpi
