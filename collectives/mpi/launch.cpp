// SPDX-License-Identifier: MIT
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "collectives/mpi/mpi_bootstrap.h"
#include "engine/base/error.h"

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

// A launcher that lockstep does not support sets these variables in its processes.
struct ForeignLauncher {
  const char* rank;
  const char* size;
  const char* name;
};
constexpr ForeignLauncher kForeign[] = {
    {"PMI_RANK", "PMI_SIZE", "MPICH or another launcher with PMI"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPICH"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun without PMIx"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux"},
    {"HOROVOD_RANK", "HOROVOD_SIZE", "horovodrun"},
    {"RANK", "WORLD_SIZE", "torchrun or a launcher like it"},
};

constexpr std::initializer_list<const char*> kSizes{"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
                                                    "SLURM_NTASKS"};

}  // namespace

void require_known_launcher() {
  if (launch().present) {
    engine::require(first_number(kSizes, 1).has_value(),
                    "OMPI_COMM_WORLD_RANK or PMIX_RANK says that a launcher started this process, "
                    "and no OMPI_COMM_WORLD_SIZE or SLURM_NTASKS how many there are: start them "
                    "with Open MPI's mpirun -n N or with srun --mpi=pmix -n N");
    return;
  }
  for (const ForeignLauncher& foreign : kForeign) {
    const int size = first_number({foreign.size}, 2).value_or(1);
    if (size == 1 || !first_number({foreign.rank}, 0)) continue;
    engine::fail(engine::Code::kInvalid,
                 "{0}={1}: {2} started {1} processes, which cannot find each other and would each "
                 "train alone: start them with Open MPI's mpirun -n {1}, with srun --mpi=pmix -n "
                 "{1}, or as tasks of a cluster by TF_CONFIG (--strategy parameter_server); for a "
                 "run of this process alone, unset {0}",
                 foreign.size, size, foreign.name);
  }
}

Launch launch() {
  Launch found;
  const auto rank = first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}, 0);
  if (!rank) return found;
  found.present = true;
  found.rank = *rank;
  found.size = first_number(kSizes, 1).value_or(1);
  found.local_rank = first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, 0).value_or(0);
  found.local_size = first_number({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1).value_or(1);
  return found;
}

}  // namespace lockstep::collectives::mpi
