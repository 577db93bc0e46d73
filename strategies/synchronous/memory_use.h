// SPDX-License-Identifier: MIT
// The memory that a process of a synchronous strategy will need, planned before any of it is taken:
// what the process has already (program, libraries, data set), and what opening and training add.
// Counted as the system counts proportional set size: memory that k processes map counts 1/k in
// each. Pure functions of their arguments.
#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/nn/graph.h"

namespace lockstep::strategies {

// What the system leaves to this process.
struct MemoryRoom {
  std::size_t taken = 0;  // by this process so far
  // That it could take besides: of the computer, its control groups and its resource limits.
  std::size_t available = std::numeric_limits<std::size_t>::max();
};
// `processes`: of this host that will take memory at the same time; they share what is free.
MemoryRoom memory_room(std::size_t processes);

struct MemoryUse {
  struct Part {
    std::string name;
    std::size_t bytes = 0;
  };
  std::vector<Part> parts;    // without what is taken already; the largest first
  engine::GraphMemory graph;  // of one replica
  std::size_t added() const;  // all parts
};
// `graph`: of each replica at this batch; the others of all replicas of the process together.
MemoryUse memory_use(const engine::GraphMemory& graph, std::size_t replicas, std::size_t arenas,
                     std::size_t slots, std::size_t batches);

// "103 MiB per process: 12 MiB for the program and its data, 58 MiB for activations,
// ..."
std::string sentence(const MemoryUse& use, const MemoryRoom& room);

// Throws Error(kMemory) where the use does not fit into the room, or, with what is taken, not below
// `limit` (0: none): the line names the largest tensor, and the largest batch that fits. `use_of`
// gives the use with a smaller batch; the use grows with it.
void require_memory(const MemoryRoom& room, std::size_t limit, std::size_t batch,
                    const std::function<MemoryUse(std::size_t batch)>& use_of);

}  // namespace lockstep::strategies
