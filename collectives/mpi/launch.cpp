// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/mpi/mpi_bootstrap.h"
#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::collectives::mpi {
namespace {

constexpr std::size_t kMostParameters = 65536;  // bytes of a file

std::optional<int> number_of(std::string_view text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) return {};
  return value;
}

// Returns the first of these variables that is a number of at least `least`.
std::optional<int> first_number(std::initializer_list<const char*> names, int least) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    const auto number = text == nullptr ? std::nullopt : number_of(text, least);
    if (number) return number;
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// Returns whether a parameter of Open MPI is a number of at least `least`. The environment precedes
// the user's file, and that precedes the system's (ompi_info --param mca base --level 2). The lines
// of both are "NAME = VALUE".
bool has_parameter(const std::string& name, int least) {
  if (first_number({("OMPI_MCA_" + name).c_str()}, least)) return true;
  std::vector<std::string> files;
  if (const char* const home = std::getenv("HOME"); home != nullptr)
    files.push_back(std::string(home) + "/.openmpi/mca-params.conf");
  files.emplace_back("/etc/openmpi/openmpi-mca-params.conf");
  for (const std::string& file : files) {
    std::string text;
    try {
      text = engine::read_text(file, file, kMostParameters);
    } catch (const engine::Error&) {  // no such file
      continue;
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::string_view all(line);
      const std::size_t equals = all.find('=');
      if (equals == all.npos || trimmed(all.substr(0, equals)) != name) continue;
      return number_of(trimmed(all.substr(equals + 1)), least).has_value();
    }
  }
  return false;
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

constexpr std::initializer_list<const char*> kSizeVariables{"OMPI_COMM_WORLD_SIZE",
                                                            "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};

}  // namespace

void require_known_launcher() {
  if (launch().present) {
    engine::require(first_number(kSizeVariables, 1).has_value(),
                    "a launcher set OMPI_COMM_WORLD_RANK or PMIX_RANK, but not the number of "
                    "processes (OMPI_COMM_WORLD_SIZE or SLURM_NTASKS): start them with Open MPI's "
                    "mpirun -n N or with srun --mpi=pmix -n N");
    return;
  }
  for (const ForeignLauncher& foreign : kForeign) {
    const int size = first_number({foreign.size}, 2).value_or(1);
    if (size == 1 || !first_number({foreign.rank}, 0)) continue;
    engine::fail(engine::Code::kInvalid,
                 "{0}={1}: {2} started {1} processes, which cannot find each other and would each "
                 "work alone: start them with Open MPI's mpirun -n {1}, with srun --mpi=pmix -n "
                 "{1}, or as tasks of a cluster by TF_CONFIG with parameter servers; for a "
                 "run of this process alone, unset {0}",
                 foreign.size, size, foreign.name);
  }
}

std::string missing_keep_alive() {
  if (has_parameter("oob_tcp_keepalive_time", 1)) return {};
  return "mpirun does not notice a host that it cannot reach any more; to end within half a minute "
         "it needs --mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 --mca "
         "oob_tcp_keepalive_probes 3";
}

Launch launch() {
  Launch found;
  const auto rank = first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}, 0);
  if (!rank) return found;
  found.present = true;
  found.rank = *rank;
  found.size = first_number(kSizeVariables, 1).value_or(1);
  found.local_rank = first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, 0).value_or(0);
  found.local_size = first_number({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1).value_or(1);
  return found;
}

}  // namespace lockstep::collectives::mpi
