// SPDX-License-Identifier: MIT
#include "strategies/session/launch.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "collectives/tcp/names.h"
#include "collectives/tcp/private_socket.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/parameter_server/rpc/host_port.h"

namespace lockstep::strategies {
namespace {

using engine::require;

constexpr int kMostProcesses = 1 << 20;
constexpr int kMostPort = 65535;
// Ports of steps that Slurm reserved none for.
constexpr int kFirstSlurmPort = 20000, kSlurmPorts = 10000;

std::optional<int> number_in(std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return {};
  return value;
}

const char* process_environment(const char* name) {
  return std::getenv(name);
}

// Reads the variables of one launcher after the other.
class Variables {
 public:
  explicit Variables(const VariableReader& environment) : get_(environment) {}
  std::string text(const char* name) const {
    const char* const value = get_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }
  // Returns whether processes that are all on one host use a private socket. A secret of the user
  // asks for TCP there, too.
  bool meet_privately(bool one_host) const {
    return one_host && !has("LOCKSTEP_SECRET") && !has("LOCKSTEP_SECRET_FILE");
  }
  // Returns the first of these variables that is a number in these bounds.
  std::optional<int> number(std::initializer_list<const char*> names, int least = 0,
                            int most = kMostProcesses) const {
    for (const char* name : names)
      if (const auto value = number_in(text(name), least, most)) return value;
    return {};
  }

 private:
  const VariableReader& get_;
};

// Processes of one user and host need no address that others can reach.
std::string private_rendezvous(std::string_view launcher, const std::string& job) {
  return collectives::tcp::private_address(
      fmt::format("{}-{:016x}", launcher, engine::hash(std::string_view(job))));
}

bool on_loopback(const std::string& host_port) {
  try {
    const HostPort address = parse_host_port(host_port);
    return address.host == "localhost" || address.loopback();
  } catch (const engine::Error&) {
    return false;
  }
}

// LOCKSTEP_RANK, LOCKSTEP_RANKS and LOCKSTEP_RENDEZVOUS, by hand or from --rank, --ranks and
// --rendezvous.
std::optional<Launch> by_hand(const Variables& v) {
  if (!v.has("LOCKSTEP_RANK")) return {};
  const auto size = v.number({"LOCKSTEP_RANKS"}, 1);
  const auto rank = v.number({"LOCKSTEP_RANK"});
  if (!size || !rank || *rank >= *size) return {};
  Launch launch{.present = true, .launcher = "LOCKSTEP_RANK", .rank = *rank, .size = *size};
  if (*size == 1) return launch;
  launch.meeting = Launch::Meeting::kRendezvous;
  launch.rendezvous = v.text("LOCKSTEP_RENDEZVOUS");
  launch.one_host = v.meet_privately(on_loopback(launch.rendezvous));
  return launch;
}

std::optional<Launch> by_torchrun(const Variables& v) {
  const auto rank = v.number({"RANK"});
  const auto size = v.number({"WORLD_SIZE"}, 1);
  if (!rank || !size || *rank >= *size || !v.has("MASTER_ADDR") || !v.has("MASTER_PORT")) return {};
  // A pod may have these variables for its one process, in which another launcher starts several.
  if (*size == 1 && !v.has("TORCHELASTIC_RUN_ID")) return {};
  Launch launch{.present = true, .launcher = "torchrun", .rank = *rank, .size = *size};
  launch.local_rank = v.number({"LOCAL_RANK"}).value_or(0);
  launch.local_size = v.number({"LOCAL_WORLD_SIZE"}, 1).value_or(1);
  if (*size == 1) return launch;
  launch.rendezvous = fmt::format("{}:{}", v.text("MASTER_ADDR"), v.text("MASTER_PORT"));
  launch.run =
      fmt::format("{}.{}", v.text("TORCHELASTIC_RUN_ID"), v.text("TORCHELASTIC_RESTART_COUNT"));
  launch.one_host = v.meet_privately(launch.local_size == launch.size);
  // The agent of torchrun may own the port.
  launch.meeting = v.text("TORCHELASTIC_USE_AGENT_STORE") == "True" && !launch.one_host
                       ? Launch::Meeting::kTorchStore
                       : Launch::Meeting::kRendezvous;
  return launch;
}

constexpr std::initializer_list<const char*> kMpiSizes{"OMPI_COMM_WORLD_SIZE",
                                                       "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};

std::optional<Launch> by_mpi(const Variables& v) {
  const auto rank = v.number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK"});
  if (!rank) return {};
  Launch launch{.present = true,
                .launcher = v.has("OMPI_COMM_WORLD_RANK") ? "mpirun" : "srun",
                .rank = *rank};
  launch.size = v.number(kMpiSizes, 1).value_or(1);
  if (launch.size == 1 && v.number({"PMI_SIZE"}, 2)) return {};  // of mpiexec within this one
  launch.local_rank = v.number({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}).value_or(0);
  launch.local_size = v.number({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1).value_or(1);
  if (launch.size > 1) launch.meeting = Launch::Meeting::kMpi;
  return launch;
}

// MPICH, Intel MPI, and `srun --mpi=pmi2`.
std::optional<Launch> by_pmi(const Variables& v) {
  const auto rank = v.number({"PMI_RANK"});
  const auto size = v.number({"PMI_SIZE"}, 1);
  if (!rank || !size || *rank >= *size || !v.number({"PMI_FD"})) return {};
  Launch launch{.present = true,
                .launcher = v.has("SLURM_STEP_ID") ? "srun" : "mpiexec",
                .rank = *rank,
                .size = *size};
  launch.local_rank = v.number({"MPI_LOCALRANKID", "SLURM_LOCALID"}).value_or(0);
  launch.local_size = v.number({"MPI_LOCALNRANKS"}, 1).value_or(1);
  if (*size > 1) launch.meeting = Launch::Meeting::kPmi;
  return launch;
}

// A step of Slurm. A batch script without a step has Slurm's other variables too, and is one
// process.
std::optional<Launch> by_slurm(const Variables& v) {
  const auto rank = v.number({"SLURM_PROCID"});
  const auto size = v.number({"SLURM_STEP_NUM_TASKS"}, 2);
  const std::string host = first_host(v.text("SLURM_STEP_NODELIST"));
  if (!rank || !size || *rank >= *size || host.empty() || !v.has("SLURM_JOB_ID")) return {};
  Launch launch{.present = true, .launcher = "srun", .rank = *rank, .size = *size};
  launch.local_rank = v.number({"SLURM_LOCALID"}).value_or(0);
  launch.meeting = Launch::Meeting::kRendezvous;
  const std::string step = v.text("SLURM_JOB_ID") + "." + v.text("SLURM_STEP_ID");
  const std::string reserved = v.text("SLURM_STEP_RESV_PORTS");
  const int port =
      number_in(std::string_view(reserved).substr(0, reserved.find_first_of("-,")), 1, kMostPort)
          .value_or(kFirstSlurmPort + int(engine::hash(std::string_view(step)) % kSlurmPorts));
  launch.rendezvous = fmt::format("{}:{}", host, port);
  launch.one_host = v.meet_privately(v.number({"SLURM_STEP_NUM_NODES"}, 1) == 1);
  if (launch.one_host) launch.local_size = launch.size;
  return launch;
}

std::optional<Launch> by_tf_config(const Variables& v) {
  const std::string text = v.text("TF_CONFIG");
  if (text.empty()) return {};
  try {
    const ClusterConfig config = parse_tf_config(text, ClusterUse::kEither);
    const auto& workers = config.spec.workers;
    const bool trains = config.task.role == Role::kChief || config.task.role == Role::kWorker;
    if (!config.spec.servers.empty() || !trains) return {};
    Launch launch{.present = true,
                  .launcher = "TF_CONFIG",
                  .rank = int(config.task.number),
                  .size = int(workers.size())};
    if (launch.size == 1) return launch;
    launch.meeting = Launch::Meeting::kRendezvous;
    launch.rendezvous = workers[0];
    launch.one_host = v.meet_privately(std::ranges::all_of(workers, on_loopback));
    launch.port = parse_host_port(workers[std::size_t(launch.rank)]).port;
    return launch;
  } catch (const engine::Error&) {
    return {};  // who uses TF_CONFIG reports it
  }
}

// A launcher that lockstep does not support sets these variables in its processes.
struct ForeignLauncher {
  const char* rank;
  const char* size;
  const char* name;
};
constexpr ForeignLauncher kForeign[] = {
    {"PMI_RANK", "PMI_SIZE", "a launcher with PMI, but without PMI_FD,"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPICH"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun without SLURM_STEP_NODELIST"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux"},
    {"HOROVOD_RANK", "HOROVOD_SIZE", "horovodrun"},
    {"RANK", "WORLD_SIZE", "torchrun or a launcher like it"},
};

void require_sound_by_hand(const Variables& v) {
  if (!v.has("LOCKSTEP_RANK") && !v.has("LOCKSTEP_RANKS") && !v.has("LOCKSTEP_RENDEZVOUS")) return;
  const auto size = v.number({"LOCKSTEP_RANKS"}, 1);
  const auto rank = v.number({"LOCKSTEP_RANK"});
  require(
      size && rank,
      "LOCKSTEP_RANK is '{}' and LOCKSTEP_RANKS is '{}': set both, to the number of this process, "
      "from 0 on, and to how many there are",
      engine::brief(v.text("LOCKSTEP_RANK")), engine::brief(v.text("LOCKSTEP_RANKS")));
  require(*rank < *size, "--rank (LOCKSTEP_RANK) is {}: of {} processes the last one is {}", *rank,
          *size, *size - 1);
  const auto started = v.number({"OMPI_COMM_WORLD_SIZE"}, 2);
  require(!started || (*size == *started && *rank == v.number({"OMPI_COMM_WORLD_RANK"})),
          "--rank (LOCKSTEP_RANK) is {} of {}, and mpirun started this process as {} of {}: leave "
          "out --rank and --ranks, since mpirun numbers the processes",
          *rank, *size, v.number({"OMPI_COMM_WORLD_RANK"}).value_or(0), *started);
  require(*size == 1 || v.has("LOCKSTEP_RENDEZVOUS"),
          "LOCKSTEP_RANKS is {}, and LOCKSTEP_RENDEZVOUS does not say where the processes meet: it "
          "is an address and a port of process 0, such as node1:29500",
          *size);
  if (*size > 1) collectives::tcp::host_and_port(v.text("LOCKSTEP_RENDEZVOUS"));
}

// torchrun's variables, if all are set or if its agent has started this process.
void require_sound_torchrun(const Variables& v) {
  const bool all =
      v.has("RANK") && v.has("WORLD_SIZE") && v.has("MASTER_ADDR") && v.has("MASTER_PORT");
  if (!all && !v.has("TORCHELASTIC_RUN_ID")) return;
  const auto rank = v.number({"RANK"}), size = v.number({"WORLD_SIZE"}, 1);
  require(rank && size && *rank < *size,
          "RANK is '{}' and WORLD_SIZE '{}': torchrun sets the number of this process, from 0 on, "
          "and how many there are; for a run of this process alone, unset both",
          engine::brief(v.text("RANK")), engine::brief(v.text("WORLD_SIZE")));
  require(*size == 1 || (v.has("MASTER_ADDR") && v.number({"MASTER_PORT"}, 1, kMostPort)),
          "MASTER_ADDR is '{}' and MASTER_PORT '{}': they must be the host and the port of process "
          "0, such as node1 and 29500",
          engine::brief(v.text("MASTER_ADDR")), engine::brief(v.text("MASTER_PORT")));
}

void require_sound_slurm(const Variables& v) {
  if (!v.has("SLURM_STEP_ID") || !v.has("SLURM_STEP_NUM_TASKS")) return;
  const auto rank = v.number({"SLURM_PROCID"}), size = v.number({"SLURM_STEP_NUM_TASKS"}, 1);
  require(size && (*size == 1 || (rank && *rank < *size)),
          "SLURM_PROCID is '{}' and SLURM_STEP_NUM_TASKS '{}': srun sets the number of this "
          "process, from 0 on, and how many there are; for a run of this process alone, unset both",
          engine::brief(v.text("SLURM_PROCID")), engine::brief(v.text("SLURM_STEP_NUM_TASKS")));
}

}  // namespace

Launch launch() {
  return launch(process_environment);
}

Launch launch(const VariableReader& environment) {
  const Variables variables(environment);
  std::optional<Launch> found;
  for (const auto reader : {by_hand, by_torchrun, by_mpi, by_pmi, by_slurm, by_tf_config}) {
    found = reader(variables);
    if (found) break;
  }
  if (!found) return {};
  if (found->one_host)
    found->rendezvous = private_rendezvous(found->launcher, found->rendezvous + found->run);
  return *found;
}

void require_known_launcher() {
  require_known_launcher(process_environment);
}

void require_known_launcher(const VariableReader& environment) {
  const Variables v(environment);
  require_sound_by_hand(v);
  const Launch found = launch(environment);
  // srun starts agents of torchrun.
  if (!found.present || found.launcher == "torchrun" || found.launcher == "srun")
    require_sound_torchrun(v);
  if (!found.present) require_sound_slurm(v);
  if (found.present) {
    const bool of_mpi = found.launcher == "mpirun" || v.has("PMIX_RANK");
    require(!of_mpi || found.several() || v.number(kMpiSizes, 1).has_value(),
            "a launcher set OMPI_COMM_WORLD_RANK or PMIX_RANK, but not the number of "
            "processes (OMPI_COMM_WORLD_SIZE or SLURM_NTASKS): start them with Open MPI's "
            "mpirun -n N or with srun --mpi=pmix -n N");
    return;
  }
  for (const ForeignLauncher& foreign : kForeign) {
    const int size = v.number({foreign.size}, 2).value_or(1);
    if (size == 1 || !v.number({foreign.rank})) continue;
    engine::fail(engine::Code::kInvalid,
                 "{0}={1}: {2} started {1} processes, which cannot find each other and would each "
                 "work alone: start them with Open MPI's mpirun -n {1}, with srun --mpi=pmix -n "
                 "{1}, by TF_CONFIG, or with --rank, --ranks {1} and --rendezvous; for a "
                 "run of this process alone, unset {0}",
                 foreign.size, size, foreign.name);
  }
}

std::string first_host(const std::string& hosts) {
  std::string host;
  for (std::size_t at = 0; at < hosts.size() && hosts[at] != ','; ++at) {
    if (hosts[at] != '[') {
      host += hosts[at];
      continue;
    }
    // Takes the first of the numbers in brackets.
    const std::size_t last = hosts.find_first_of("-,]", at + 1), closed = hosts.find(']', at);
    if (closed == std::string::npos) return {};
    host += hosts.substr(at + 1, last - at - 1);
    at = closed;
  }
  const auto of_name = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '.' || c == '_';
  };
  return std::ranges::all_of(host, of_name) ? host : std::string();
}

}  // namespace lockstep::strategies
