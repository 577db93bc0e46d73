// SPDX-License-Identifier: MIT
// Tests which positions of an epoch a batch and a replica get: each position exactly once, for any
// sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/pipeline.h"

namespace lockstep::engine {
namespace positions_test {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Positions, BatchesOfAnEpochCoverItInOrder) {
  for (const std::uint64_t examples : {1, 2, 7, 8, 9, 97}) {
    for (const std::uint64_t batch : {1, 2, 3, 8, 100}) {
      DataPosition position{4, 0};
      std::uint64_t end = 0;
      while (position.epoch == 4) {
        const Range range = next_batch(position, examples, batch);
        ASSERT_EQ(range.begin, end);
        ASSERT_EQ(range.size(), std::min(batch, examples - end));
        end = range.end;
        position = after_batch(position, examples, batch);
      }
      EXPECT_EQ(end, examples);
      EXPECT_EQ(position, (DataPosition{5, 0}));
    }
  }
}

TEST(Positions, ABatchMayBeAsLargeAsANumberCanBe) {
  const std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(next_batch({0, 3}, 10, largest), (Range{3, 10}));
  EXPECT_EQ(after_batch({0, 3}, 10, largest), (DataPosition{1, 0}));
}

TEST(Positions, AnEmptySetHasEmptyBatchesAndItsEpochsEnd) {
  EXPECT_TRUE(next_batch({2, 0}, 0, 8).empty());
  EXPECT_EQ(after_batch({2, 0}, 0, 8), (DataPosition{3, 0}));
}

TEST(Positions, APositionOutsideTheDataIsRefused) {
  EXPECT_THAT(
      [] {
        next_batch({0, 10}, 10, 4);
      },
      ThrowsMessage<Error>(HasSubstr("position 10 of an epoch of 10 examples")));
  EXPECT_THAT([] { next_batch({-1, 0}, 10, 4); }, ThrowsMessage<Error>(HasSubstr("epoch -1")));
  EXPECT_THAT([] { after_batch({0, 0}, 10, 0); }, ThrowsMessage<Error>(HasSubstr("at least 1")));
}

TEST(Shares, PartsCoverTheBatchInOrderAndDifferByAtMostOne) {
  for (std::uint64_t size = 0; size < 40; ++size) {
    const Range batch{11, 11 + size};
    for (int ranks = 1; ranks <= 17; ++ranks) {
      std::uint64_t end = batch.begin, least = size, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range part = share_of(batch, rank, ranks);
        ASSERT_EQ(part.begin, end);
        ASSERT_LE(part.begin, part.end);
        end = part.end;
        least = std::min(least, part.size());
        most = std::max(most, part.size());
      }
      ASSERT_EQ(end, batch.end);
      ASSERT_LE(most - least, 1u) << size << " examples, " << ranks << " ranks";
    }
  }
}

TEST(Shares, PartsFollowTheirWeightsToWithinOneExample) {
  const std::vector<std::uint64_t> shares = {3, 0, 1, 7, 2};
  for (std::uint64_t size = 0; size < 60; ++size) {
    const Range batch{5, 5 + size};
    std::uint64_t end = batch.begin;
    for (int rank = 0; rank < 5; ++rank) {
      const Range part = share_of(batch, rank, 5, shares);
      ASSERT_EQ(part.begin, end);
      end = part.end;
      const double wanted = double(size) * double(shares[std::size_t(rank)]) / 13;
      ASSERT_LT(std::abs(double(part.size()) - wanted), 1) << size << " examples, rank " << rank;
    }
    ASSERT_EQ(end, batch.end);
  }
  EXPECT_EQ(share_of({0, 26}, 3, 5, shares).size(), 14u);
  EXPECT_TRUE(share_of({0, 1000}, 1, 5, shares).empty());
}

TEST(Shares, EqualWeightsAreNoWeights) {
  const std::vector<std::uint64_t> shares(7, 5);
  for (std::uint64_t size = 0; size < 50; ++size) {
    for (int rank = 0; rank < 7; ++rank) {
      ASSERT_EQ(share_of({3, 3 + size}, rank, 7, shares), share_of({3, 3 + size}, rank, 7));
    }
  }
}

TEST(Shares, PartsOfFewRanksAreUnionsOfPartsOfMany) {
  for (std::uint64_t size = 0; size < 70; ++size) {
    for (int rank = 0; rank < 4; ++rank) {
      const Range part = share_of({0, size}, rank, 4);
      EXPECT_EQ(part.begin, share_of({0, size}, 2 * rank, 8).begin);
      EXPECT_EQ(part.end, share_of({0, size}, 2 * rank + 1, 8).end);
    }
  }
}

TEST(Shares, LargeBatchesAndWeightsDoNotOverflow) {
  const std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(share_of({0, largest}, 1, 2, {0xfffffffe, 1}).end, largest);
  EXPECT_EQ(share_of({0, largest}, 0, 3).size(), largest / 3);
}

TEST(Shares, WhatCannotBeSharedIsRefused) {
  EXPECT_THAT([] { share_of({0, 4}, 2, 2); }, ThrowsMessage<Error>(HasSubstr("rank 2 of 2")));
  EXPECT_THAT([] { share_of({0, 4}, -1, 2); }, ThrowsMessage<Error>(HasSubstr("rank -1 of 2")));
  EXPECT_THAT(
      [] {
        share_of({0, 4}, 0, 2, {1, 2, 3});
      },
      ThrowsMessage<Error>(HasSubstr("3 shares for 2 ranks")));
  EXPECT_THAT(
      [] {
        share_of({0, 4}, 0, 2, {0, 0});
      },
      ThrowsMessage<Error>(HasSubstr("all shares are 0")));
  EXPECT_THAT(
      [] {
        share_of({0, 4}, 0, 2, {0xffffffff, 1});
      },
      ThrowsMessage<Error>(HasSubstr("add up to more than 4294967295")));
}

}  // namespace positions_test
}  // namespace lockstep::engine
