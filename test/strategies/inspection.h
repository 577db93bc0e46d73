// SPDX-License-Identifier: MIT
// Access for tests to the state of an open synchronous strategy, also to corrupt it. Call these
// functions outside of `run`. `local` is the number of a replica of this process.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "strategies/synchronous/synchronous.h"

namespace lockstep::test {

// Verifies the whole step symbolically as a plan. Returns an error text, empty on success.
std::string verify(const strategies::Synchronous& strategy);
// Returns a copy of a replica's weights as float64, in the order of the arena.
std::vector<double> weights(const strategies::Synchronous& strategy, int local);
// Returns the number of elements that the replica updates.
std::size_t owned_elements(const strategies::Synchronous& strategy, int local);
// Returns the number of buckets, over all replicas so far, that were updated before backward ended.
std::int64_t overlapped(const strategies::Synchronous& strategy);
// Returns the number of layers' reductions, over all replicas so far, that began while buckets were
// in flight.
std::int64_t reductions_beside(const strategies::Synchronous& strategy);
// Flips a bit of one weight of one mirror.
void corrupt(const strategies::Synchronous& strategy, int local, std::size_t element);

}  // namespace lockstep::test
