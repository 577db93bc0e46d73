// SPDX-License-Identifier: MIT
// The bucket model finds the best of all partitions of the units into buckets.
#include "bench/bucket_model.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace lockstep::bench {
namespace bucket_model_test {

BucketCost line(double latency, double seconds_a_byte) {
  return [=](std::size_t bytes) { return latency + double(bytes) * seconds_a_byte; };
}

// Returns the buckets of one partition: bit i of `borders` ends a bucket behind unit i.
std::vector<ReadyUnit> joined(const std::vector<ReadyUnit>& units, unsigned borders) {
  std::vector<ReadyUnit> buckets;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    bytes += units[i].bytes;
    if (i + 1 < units.size() && !(borders >> i & 1)) continue;
    buckets.push_back({units[i].seconds, bytes});
    bytes = 0;
  }
  return buckets;
}

TEST(BucketModel, OneChannelTakesBucketsInOrder) {
  // The second bucket waits for the channel; the third waits until it is ready.
  const std::vector<ReadyUnit> buckets{{1, 10}, {2, 10}, {20, 10}};
  EXPECT_DOUBLE_EQ(end_of_buckets(buckets, line(1, 0.2)), 23);
  EXPECT_DOUBLE_EQ(
      end_of_buckets(std::vector<ReadyUnit>(buckets.begin(), buckets.begin() + 2), line(1, 0.2)),
      7);
  EXPECT_EQ(end_of_buckets({}, line(1, 1)), 0);
}

TEST(BucketModel, TheBestIsTheBestOfAllWays) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<ReadyUnit> units(1 + random() % 9);
    double now = 0;
    for (ReadyUnit& unit : units) {
      now += double(random() % 100) * 1e-3;
      unit = {now, 1 + random() % 5000};
    }
    const BucketCost cost = line(double(random() % 50) * 1e-3, double(random() % 20) * 1e-6);
    const BestBuckets best = best_buckets(units, cost);
    EXPECT_DOUBLE_EQ(end_of_buckets(best.buckets, cost), best.seconds);
    std::size_t bytes = 0;
    for (const ReadyUnit& bucket : best.buckets) bytes += bucket.bytes;
    EXPECT_EQ(bytes, std::accumulate(
                         units.begin(), units.end(), std::size_t(0),
                         [](std::size_t sum, const ReadyUnit& unit) { return sum + unit.bytes; }));
    for (unsigned borders = 0; borders < 1u << (units.size() - 1); ++borders)
      EXPECT_LE(best.seconds, end_of_buckets(joined(units, borders), cost) * (1 + 1e-12));
  }
}

TEST(BucketModel, WhereNothingIsGainedThereIsOne) {
  const std::vector<ReadyUnit> at_once{{5, 100}, {5, 200}, {5, 300}};
  const BestBuckets best = best_buckets(at_once, line(0, 0.25));
  ASSERT_EQ(best.buckets.size(), 1u);
  EXPECT_EQ(best.buckets[0].bytes, 600u);
  EXPECT_TRUE(best_buckets({}, line(1, 1)).buckets.empty());
}

}  // namespace bucket_model_test
}  // namespace lockstep::bench
