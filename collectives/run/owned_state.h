// SPDX-License-Identifier: MIT
// Optimizer state of one rank: its owned ranges, packed consecutively. Value k
// (engine/ops/reduce.h) of owned element i lies at slots + (k * elements + i) * the size of the
// dtype of computation. The slots come first, then the master weights of 16-bit weights.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/plan/plan.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

struct OwnedState {
  const engine::UpdateRule* rule = nullptr;
  std::vector<Range> ranges = {};  // ascending in the packed order
  std::byte* slots = nullptr;
  std::size_t norm_blocks = 0;  // blocks of the arena in a global norm
  // Segments of the arena, ascending, up to its end. If there are none, all of it is alike and
  // decays.
  std::vector<engine::UpdateSegment> segments = {};
  // Initialized memory for what a rule derives from all gradients. If it is empty, the executor
  // allocates its own, which needs kernels that read host memory.
  engine::UpdateMemory memory = {};
  std::size_t segment(std::size_t offset) const;  // segment that holds the element
  // Returns how many numbers the norms of a rank have if the rule needs norms of layers. The rank's
  // arena has so many blocks and segments.
  static std::size_t layer_norms(std::size_t blocks, std::size_t segments) {
    return 2 * (blocks + segments);
  }
  std::size_t elements() const;
  std::size_t local(std::size_t offset) const;  // packed index of arena element `offset`
};

}  // namespace lockstep::collectives
