// SPDX-License-Identifier: MIT
// Which processors each replica of a host runs on. Where the threads of the replicas are exactly as
// many as the processors that they may use, each replica gets processors of its own, so that no two
// meet on one and none is moved away from its caches. Where there are idle processors the kernel
// may choose; where there are more threads than processors they take turns, and somebody should
// know.
#pragma once
#include <span>
#include <string>
#include <vector>

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

// Of process `mine` of the host. Pure: the same on all processes of the host. Processes that may
// use the same processors share them; a launcher that gave each its own has chosen already.
// `cores`: as many as a process may keep busy, which a container's quota makes fewer than its
// processors.
Binding plan_binding(std::span<const HostProcess> processes, std::size_t mine, int threads,
                     int cores);

// The calling thread, and those that it starts from now on. A kernel that refuses is left alone: it
// costs speed, nothing else.
void bind_this_thread(std::span<const int> processors);

}  // namespace lockstep::collectives
