// SPDX-License-Identifier: MIT
// Looks up the function by name, since not every MPI has it:
// https://www.open-mpi.org/faq/?category=runcuda
#include "collectives/mpi/cuda_aware.h"

#include <dlfcn.h>

namespace lockstep::collectives::mpi {

std::optional<bool> cuda_aware() {
  using Query = int();
  auto* const query = reinterpret_cast<Query*>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  if (query == nullptr) return std::nullopt;
  return query() != 0;
}

}  // namespace lockstep::collectives::mpi
