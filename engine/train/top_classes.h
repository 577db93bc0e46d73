// SPDX-License-Identifier: MIT
// How often the right class is among the first few. One pass over the outputs; any thread. Memory
// of the device must be the host's.
#pragma once
#include <cstddef>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// How many of the first `rows` rows of `outputs` have among their `best` largest numbers that of
// the class which `target` (float32, one a row) names. Of equal numbers the first comes first. A
// row with a number that is none is a wrong one.
std::size_t count_in_top(const Tensor& outputs, const Tensor& target, std::size_t rows,
                         std::size_t best);

}  // namespace lockstep::engine
