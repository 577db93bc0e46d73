// SPDX-License-Identifier: MIT
// Measures the peak memory that code holds from operator new. Not thread-safe. Replaces operator
// new in the whole program.
#pragma once
#include <cstddef>

namespace lockstep::test {

void watch_memory();        // starts measuring
std::size_t most_memory();  // peak bytes above those held at the start
}  // namespace lockstep::test
