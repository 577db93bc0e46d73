// SPDX-License-Identifier: MIT
// When is the last sum of a step through? Buckets become ready one after the other while backward
// runs, and one channel takes them in that order: bucket j ends at
//   F(j) = max(F(j - 1), when it is ready) + what it costs.
// A model: it knows no update, no next step's forward that may hide more, and no processor time
// that communication takes from backward. Pure; any thread.
// best_buckets is the recursion over all borders (as MG-WFBP, Shi et al. 2019), O(L^2) for L units.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::bench {

// Gradients that become final together, a layer's say.
struct ReadyUnit {
  double seconds = 0;  // since any moment; ascending
  std::size_t bytes = 0;
};

// Seconds that a bucket of so many bytes takes alone.
using BucketCost = std::function<double(std::size_t bytes)>;

// When the last bucket ends, each of which is one unit; 0 where there is none.
double end_of_buckets(std::span<const ReadyUnit> buckets, const BucketCost& cost);

struct BestBuckets {
  std::vector<ReadyUnit> buckets;  // the fewest among those that end first
  double seconds = 0;              // when the last one ends
};
// Units joined to buckets, neighbours only.
BestBuckets best_buckets(std::span<const ReadyUnit> units, const BucketCost& cost);

}  // namespace lockstep::bench
