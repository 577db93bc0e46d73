// SPDX-License-Identifier: MIT
// The pieces of a checkpoint that a replica of a synchronous strategy saves and restores: weights,
// assigned to the ranks by their bytes; what updates keep of the elements that a rank owns;
// statistics, and the loss scale. Between steps, on the replica's thread; the pieces point into the
// mirror's memory, or into copies of it where that lies on a device.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "strategies/synchronous/mirror.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

std::vector<engine::Piece> pieces_to_save(Mirror& mirror, const StepDesign& design,
                                          std::size_t ranks);
std::vector<engine::Piece> pieces_to_restore(Mirror& mirror, const StepDesign& design);

}  // namespace lockstep::strategies
