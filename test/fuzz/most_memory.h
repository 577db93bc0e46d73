// SPDX-License-Identifier: MIT
// The most bytes that a piece of code holds at once from operator new. One thread; for a program of
// its own, since it replaces operator new there.
#pragma once
#include <cstddef>

namespace lockstep::test {

void watch_memory();        // from here on
std::size_t most_memory();  // bytes above what was held then, at the worst moment since
}  // namespace lockstep::test
