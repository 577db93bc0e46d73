// SPDX-License-Identifier: MIT
// The optimizer's state of one rank: its owned ranges, packed one behind the other. Of the values
// kept (engine/ops/reduce.h) number k of owned element i lies at slots + (k * elements + i) * the
// size of the dtype that is computed in: slots, then the masters of weights of 16 bits.
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
  std::size_t norm_blocks = 0;  // blocks of the whole arena that a global norm adds
  // Of the arena, ascending, up to its end; none: all of it is alike, and decays.
  std::vector<engine::UpdateSegment> segments = {};
  // Of a rule that needs something of all gradients: where that is found, and lies as it begins;
  // none: in memory of the executor's own, where kernels read the host's.
  engine::UpdateMemory memory = {};
  std::size_t segment(std::size_t offset) const;  // the number of that which holds the element
  // Numbers in the norms of a rank, whose arena has so many blocks and segments, where the rule
  // needs norms of layers.
  static std::size_t layer_norms(std::size_t blocks, std::size_t segments) {
    return 2 * (blocks + segments);
  }
  std::size_t elements() const;
  std::size_t local(std::size_t offset) const;  // where arena element `offset` lies, packed
};

}  // namespace lockstep::collectives
