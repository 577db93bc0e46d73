// SPDX-License-Identifier: MIT
// Assigns activations, gradients and workspaces of a graph to offsets of one buffer. Blocks that
// are needed at the same moment of the schedule do not overlap; others may share bytes.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/nn/graph_plan.h"
#include "engine/nn/graph_schedule.h"
#include "engine/nn/memory_plan.h"

namespace lockstep::engine {

// Holds the blocks of the buffer. The other fields hold indices of blocks.
struct GraphBuffer {
  static constexpr std::size_t kNone = GraphSchedule::kNone;
  std::vector<Lifetime> blocks;
  MemoryPlan memory;
  // These have an entry per value (only values with storage of their own have a block). Backward
  // reads `values_late`: inner values of a block that runs again have another location then.
  std::vector<std::size_t> values, values_late, gradients;
  std::vector<std::size_t> workspaces;          // per node
  std::vector<std::vector<std::size_t>> aside;  // per node and input: a separate gradient
  std::vector<bool> adds;                       // per node: adds onto another's gradient
  std::vector<std::size_t> touched;             // per entry of GraphPlan::sources
  std::size_t target = kNone, ids = kNone, losses = kNone, correct = kNone;

  // Returns the block's address, or null for kNone.
  std::byte* at(std::byte* buffer, std::size_t block) const {
    return block == kNone ? nullptr : buffer + memory.offsets[block];
  }
};

GraphBuffer plan_buffer(const GraphSpec& spec, const GraphPlan& plan, const GraphSchedule& schedule,
                        Ops& ops, std::size_t rows);

// Returns the memory needed, without that of kernels and weights.
GraphMemory memory_of(const GraphBuffer& buffer, const GraphSpec& spec, const GraphPlan& plan,
                      std::size_t rows);

}  // namespace lockstep::engine
