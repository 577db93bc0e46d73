// SPDX-License-Identifier: MIT
// What tests look at in a synchronous strategy that is open, and what they break there. Outside of
// `run`; `local` is the number of a replica of this process.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "strategies/synchronous/synchronous.h"

namespace lockstep::test {

// Checks the whole step as a plan, symbolically; empty when it is right.
std::string verify(const strategies::Synchronous& strategy);
// A copy of a replica's weights, as float64, in the order of the arena.
std::vector<double> weights(const strategies::Synchronous& strategy, int local);
// Elements whose updates the replica makes.
std::size_t owned_elements(const strategies::Synchronous& strategy, int local);
// Buckets whose update was done before backward had ended, of all replicas so far.
std::int64_t overlapped(const strategies::Synchronous& strategy);
// Reductions of layers that began while buckets were in flight, of all replicas so far.
std::int64_t reductions_beside(const strategies::Synchronous& strategy);
// Flips a bit of one weight of one mirror.
void corrupt(const strategies::Synchronous& strategy, int local, std::size_t element);

}  // namespace lockstep::test
