// SPDX-License-Identifier: MIT
// Description of how this process was started: the launcher, the place among the processes of the
// job, and how these meet. It is read from variables of the environment. Of several launchers, such
// as `srun torchrun`, the innermost counts. Plain values. Thread-safe, as long as nobody changes
// the environment.
#pragma once
#include <functional>
#include <string>

namespace lockstep::strategies {

struct Launch {
  // Way in which the processes meet. kNone: this process is alone. kMpi: MPI or PMIx connects them.
  // In the other cases they connect to the first process: at an address that all know
  // (kRendezvous), that a process manager with PMI distributes (kPmi), or that the store of
  // torchrun's agent holds.
  enum class Meeting { kNone, kMpi, kRendezvous, kPmi, kTorchStore };
  bool present = false;  // started by a launcher
  // "mpirun", "mpiexec", "srun", "torchrun", "TF_CONFIG" or "LOCKSTEP_RANK"; empty: none.
  std::string launcher = {};
  Meeting meeting = Meeting::kNone;
  int rank = 0, size = 1;
  // Place on this host. A session corrects it when the processes have met.
  int local_rank = 0, local_size = 1;
  // Address of the first process, "node1:29500", or of the store; empty for PMI.
  std::string rendezvous = {};
  std::string run = {};  // its name in the store
  // All processes are on this host and meet at a private socket, whose address is `rendezvous`.
  bool one_host = false;
  int port = 0;  // for connections of other hosts; 0: any
  bool several() const { return present && size > 1; }
  // Returns whether one terminal shows the output of all processes, so that one speaks for all.
  bool one_terminal() const {
    return present && launcher != "TF_CONFIG" && launcher != "LOCKSTEP_RANK";
  }
};

// Returns the value of a variable, or null.
using VariableReader = std::function<const char*(const char* name)>;

// Returns the launch that the environment describes, or an absent one if it describes none or
// contradicts itself. Default: the environment of this process.
Launch launch();
Launch launch(const VariableReader& environment);

// Throws Error(kInvalid) if a launcher started several processes that cannot meet, and if its
// variables contradict each other. Then each process would do the whole work alone. The error names
// the variables and the launchers that work.
void require_known_launcher();
void require_known_launcher(const VariableReader& environment);

// Returns the first host of Slurm's list "node[08-11,15],login"; empty if the text is no such list.
std::string first_host(const std::string& hosts);

}  // namespace lockstep::strategies
