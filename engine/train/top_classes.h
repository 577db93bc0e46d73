// SPDX-License-Identifier: MIT
// Counts how often the target class is among the top few. Takes one pass over the outputs;
// thread-safe. Requires a device with host memory.
#pragma once
#include <cstddef>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// Returns how many of the first `rows` rows of `outputs` have the class that `target` (float32, one
// per row) names among their `best` largest numbers. Ties go to the first. A row with a NaN is
// wrong.
std::size_t count_in_top(const Tensor& outputs, const Tensor& target, std::size_t rows,
                         std::size_t best);

}  // namespace lockstep::engine
