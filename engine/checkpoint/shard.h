// SPDX-License-Identifier: MIT
// The interface between strategies, which hold the state of a run, and checkpoints, which store it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// Is a part of a named array in this rank's memory: elements `range` of the flattened array. The
// pieces that all ranks save cover each element of an array once. A name contains no '@'.
struct Piece {
  std::string name = {};  // "conv1.weight", "momentum/conv1.weight"
  Shape shape = {};       // shape of the whole array
  DType dtype = DType::kFloat32;
  Range range = {};
  std::byte* data = nullptr;
};

// Describes one file of a checkpoint, as its writer reports it.
struct Shard {
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

}  // namespace lockstep::engine
