// SPDX-License-Identifier: MIT
// The pieces of a checkpoint that a replica of a synchronous strategy saves and restores: weights,
// assigned to ranks by their bytes; values that updates keep of the rank's owned elements;
// statistics; and the loss scale. Call it between steps on the replica's thread. The pieces point
// into the mirror's memory, or into copies of it if that is on a device.
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
