// SPDX-License-Identifier: MIT
// Binding of a host's replicas to processors. Each replica thread gets a whole core of its own if
// there are enough, else hyperthreads: as many cores as possible have one thread. Threads fill the
// machine in order: neighboring replicas share caches and a NUMA node, and a node is full before
// the next one is used. A replica stays on one node if the nodes have room. The threads of a node
// share its spare cores.
//
// The kernel may choose if one node without hyperthreads has idle processors. If there are more
// threads than processors, threads take turns, and the binding has a warning.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "collectives/topology/machine_map.h"

namespace lockstep::collectives {

// Returns the numbers of the processors that the calling thread may run on, ascending.
std::vector<int> allowed_processors();

// Converts processor numbers to text for other processes ("0,1,5") and back.
std::string to_text(std::span<const int> processors);
std::vector<int> processors_of(const std::string& text);

struct Binding {
  std::vector<std::vector<int>> processors;  // one entry per replica; empty: not bound
  std::string warning;                       // set if threads must share processors
};

// Describes a process of a host. Lists are in the order of the ranks.
struct HostProcess {
  std::vector<int> processors;  // allowed processors
  int replicas = 1;
};

// Plans the bindings of all processes of a host. The function is pure: the result is the same on
// all of them. Processes with the same allowed processors share them. If a launcher gave each
// process its own processors, the binding keeps to these. `map`: the location of the processors; an
// unknown one counts as a core of its own. `cores`: how many processors a process may keep busy,
// which a container's quota may limit.
std::vector<Binding> plan_bindings(std::span<const HostProcess> processes, const MachineMap& map,
                                   int threads, int cores);
// Plans the binding of process `mine` alone. A map of its own processors is enough.
Binding plan_binding(std::span<const HostProcess> processes, std::size_t mine,
                     const MachineMap& map, int threads, int cores);

// A confinement keeps a process to fewer processors than the machine has.
struct Confinement {
  int allowed = 1, online = 1;  // processors
  double quota = 0;             // cgroup quota in processors; 0: none
  bool bound_by_mpirun = false;
};
Confinement confinement();                              // of this process
std::string why_confined(const Confinement& confined);  // explains it; empty if unconfined

// Binds the calling thread and the threads that it starts later. Ignores refusals of the kernel,
// which cost only speed.
void bind_this_thread(std::span<const int> processors);

}  // namespace lockstep::collectives
