// SPDX-License-Identifier: MIT
// Counts the calls of operator new in all threads of a program that links this file.
#pragma once
#include <cstdint>

namespace lockstep::test {
void count_allocations();            // starts from zero
std::int64_t counted_allocations();  // since the start; stops counting
}  // namespace lockstep::test
