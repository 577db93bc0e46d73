// SPDX-License-Identifier: MIT
#include "bench/bucket_model.h"

#include <algorithm>
#include <limits>

namespace lockstep::bench {

double end_of_buckets(std::span<const ReadyUnit> buckets, const BucketCost& cost) {
  double end = 0;
  for (const ReadyUnit& bucket : buckets) end = std::max(end, bucket.seconds) + cost(bucket.bytes);
  return end;
}

BestBuckets best_buckets(std::span<const ReadyUnit> units, const BucketCost& cost) {
  // The optimum of the first units: the earliest end of their last bucket, the number of buckets,
  // and the start of the last bucket.
  struct Best {
    double end = std::numeric_limits<double>::infinity();
    std::size_t buckets = 0, begin = 0;
  };
  std::vector<Best> best(units.size() + 1);
  best[0] = {0, 0, 0};
  for (std::size_t last = 1; last <= units.size(); ++last) {
    std::size_t bytes = 0;
    for (std::size_t begin = last; begin-- > 0;) {
      bytes += units[begin].bytes;
      const double end = std::max(best[begin].end, units[last - 1].seconds) + cost(bytes);
      const std::size_t buckets = best[begin].buckets + 1;
      if (end < best[last].end || (end == best[last].end && buckets < best[last].buckets))
        best[last] = {end, buckets, begin};
    }
  }
  BestBuckets found;
  found.seconds = best[units.size()].end;
  for (std::size_t last = units.size(); last > 0; last = best[last].begin) {
    ReadyUnit bucket{units[last - 1].seconds, 0};
    for (std::size_t i = best[last].begin; i < last; ++i) bucket.bytes += units[i].bytes;
    found.buckets.push_back(bucket);
  }
  std::reverse(found.buckets.begin(), found.buckets.end());
  return found;
}

}  // namespace lockstep::bench
