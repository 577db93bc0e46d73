// SPDX-License-Identifier: MIT
// Model of the end of the last sum of a step. Buckets become ready one after the other while
// backward runs, and one channel processes them in that order. Bucket j ends at
//   F(j) = max(F(j - 1), time when it is ready) + its cost.
// The model has no update, no forward pass of the next step that may hide more, and no processor
// time that communication takes from backward. Pure; any thread. best_buckets is the recursion over
// all borders (as MG-WFBP, Shi et al. 2019), O(L^2) for L units.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::bench {

// Describes gradients that become final together, e.g. those of a layer.
struct ReadyUnit {
  double seconds = 0;  // since any common moment; ascending
  std::size_t bytes = 0;
};

// Seconds of a bucket of `bytes` alone.
using BucketCost = std::function<double(std::size_t bytes)>;

// Returns the time when the last bucket ends; 0 without buckets. Each unit is a bucket.
double end_of_buckets(std::span<const ReadyUnit> buckets, const BucketCost& cost);

struct BestBuckets {
  std::vector<ReadyUnit> buckets;  // the fewest among the earliest ends
  double seconds = 0;              // end of the last bucket
};
// Joins adjacent units to buckets so that the last bucket ends as early as possible.
BestBuckets best_buckets(std::span<const ReadyUnit> units, const BucketCost& cost);

}  // namespace lockstep::bench
