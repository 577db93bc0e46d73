// SPDX-License-Identifier: MIT
// Assigns activations, gradients and workspaces of a graph to offsets of one buffer. Blocks that
// are needed at the same moment of the schedule do not overlap; others share bytes.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/nn/graph_plan.h"
#include "engine/nn/graph_schedule.h"
#include "engine/nn/memory_plan.h"

namespace lockstep::engine {

// The blocks of the buffer. The other fields hold numbers of blocks.
struct GraphBuffer {
  static constexpr std::size_t kNone = GraphSchedule::kNone;
  std::vector<Lifetime> blocks;
  MemoryPlan memory;
  // Of each value (of storage alone; others have none), and where backward reads a value: inner
  // ones of a block that runs again lie elsewhere then.
  std::vector<std::size_t> values, values_late, gradients;
  std::vector<std::size_t> workspaces;          // of each node
  std::vector<std::vector<std::size_t>> aside;  // per node and input: a gradient of its own
  std::vector<bool> adds;                       // of each node: its gradient goes onto another's
  std::vector<std::size_t> touched;             // of each of GraphPlan::sources
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
