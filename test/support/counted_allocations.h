// SPDX-License-Identifier: MIT
// Counts calls of operator new, in all threads of a program that links this.
#pragma once
#include <cstdint>

namespace lockstep::test {
void count_allocations();            // from zero
std::int64_t counted_allocations();  // since then; and stops counting
}  // namespace lockstep::test
