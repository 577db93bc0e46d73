// SPDX-License-Identifier: MIT
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "collectives/mpi/mpi_bootstrap.h"

namespace lockstep::collectives::mpi {
namespace {

// The first of these variables that is a number from `least` on.
std::optional<int> first_number(std::initializer_list<const char*> names, int least) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view all(text);
    int value = 0;
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
    if (error == std::errc() && end == all.data() + all.size() && value >= least) return value;
  }
  return std::nullopt;
}

}  // namespace

Launch launch() {
  Launch found;
  const auto rank = first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}, 0);
  if (!rank) return found;
  found.present = true;
  found.rank = *rank;
  found.size = first_number({"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}, 1).value_or(1);
  found.local_rank = first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, 0).value_or(0);
  found.local_size = first_number({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1).value_or(1);
  return found;
}

}  // namespace lockstep::collectives::mpi
