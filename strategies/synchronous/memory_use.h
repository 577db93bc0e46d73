// SPDX-License-Identifier: MIT
// The memory that a process of a synchronous strategy will need, planned before it is allocated:
// what the process already has (program, libraries, data set), and what opening and training add.
// Counted like proportional set size: memory that k processes map counts 1/k in each. The total is
// right within 10 % or 16 MB of what the system reports (test/tools/memory_test.py). Memory of
// libraries cannot be queried before the first step and is estimated: 5 MiB, and 0.5 MiB per
// replica. Measured at batch 128, in MiB: mlp 5, mlp_wide 8, mnist_cnn 6 with one replica; mlp 5
// and mnist_cnn 2 with eight. Pure functions.
#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/nn/graph.h"

namespace lockstep::strategies {

// Holds the memory that the system leaves to this process.
struct MemoryRoom {
  std::size_t taken = 0;  // used by this process so far
  // Bytes that it can still allocate, limited by the computer, control groups and resource limits.
  std::size_t available = std::numeric_limits<std::size_t>::max();
};
// `processes`: number of this host's processes that allocate at the same time and share the free
// memory.
MemoryRoom memory_room(std::size_t processes);

struct MemoryUse {
  struct Part {
    std::string name;
    std::size_t bytes = 0;
  };
  std::vector<Part> parts;    // without `taken`; the largest first
  engine::GraphMemory graph;  // memory of one replica
  std::size_t added() const;  // sum of all parts
};
// Returns the use at the batch size of `graph`, which is one replica's. The other values are totals
// of the process's replicas.
MemoryUse memory_use(const engine::GraphMemory& graph, std::size_t replicas, std::size_t arenas,
                     std::size_t slots, std::size_t batches);

// Returns "memory: 103 MiB per process: 12 MiB for the program and its data, 58 MiB for
// activations, ...".
std::string sentence(const MemoryUse& use, const MemoryRoom& room);

// Throws Error(kMemory) if the use exceeds the room, or if it exceeds `limit` (0: none) together
// with the memory already taken. The error names the largest tensor and the largest batch that
// fits. `use_of`: the use at a batch size, with which it grows.
void require_memory(const MemoryRoom& room, std::size_t limit, std::size_t batch,
                    const std::function<MemoryUse(std::size_t batch)>& use_of);

}  // namespace lockstep::strategies
