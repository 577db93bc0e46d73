// SPDX-License-Identifier: MIT
// Which processors each replica of a host runs on. Each thread of the replicas gets a whole core of
// its own where there are enough, else hyperthreads: so many cores as possible have one thread.
// Threads follow each other through the machine, so that replicas that are neighbours share caches
// and a NUMA node, and a node is full before the next one is begun; a replica is not cut in two
// where the nodes have room. Cores that are left on a node are divided among its threads.
//
// Where idle processors are left, on one node, and none is a hyperthread, the kernel may choose;
// where there are more threads than processors they take turns, and somebody should know.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "collectives/topology/machine_map.h"

namespace lockstep::collectives {

// Numbers of the processors that the calling thread may run on, ascending.
std::vector<int> allowed_processors();

// Text for other processes: "0,1,5".
std::string to_text(std::span<const int> processors);
std::vector<int> processors_of(const std::string& text);

struct Binding {
  std::vector<std::vector<int>> processors;  // of each replica of the process; empty: not bound
  std::string warning;                       // where threads have to share processors
};

// A process of a host, in the order of its ranks.
struct HostProcess {
  std::vector<int> processors;  // that it may run on
  int replicas = 1;
};

// Of each process of a host. Pure: the same on all of them. Processes that may use the same
// processors share them; a launcher that gave each its own has chosen already, and nobody leaves
// what it gave. `map`: where the processors are; what it does not know is a core of its own.
// `cores`: as many as a process may keep busy, which a container's quota makes fewer than its
// processors.
std::vector<Binding> plan_bindings(std::span<const HostProcess> processes, const MachineMap& map,
                                   int threads, int cores);
// Of process `mine` alone: a map of its own processors is enough.
Binding plan_binding(std::span<const HostProcess> processes, std::size_t mine,
                     const MachineMap& map, int threads, int cores);

// A confinement keeps a process to fewer processors than the machine has.
struct Confinement {
  int allowed = 1, online = 1;  // processors
  double quota = 0;             // of the control group, in processors; 0: none
  bool bound_by_mpirun = false;
};
Confinement confinement();                              // of this process
std::string why_confined(const Confinement& confined);  // for people; empty where nothing does

// The calling thread, and those that it starts from now on. A kernel that refuses is left alone: it
// costs speed, nothing else.
void bind_this_thread(std::span<const int> processors);

}  // namespace lockstep::collectives
