// SPDX-License-Identifier: MIT
#include "strategies/synchronous/communication_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::strategies {
namespace communication_threads_test {

using testing::HasSubstr;

constexpr std::size_t kMuch = std::size_t(100) << 20;

TEST(CommunicationThreads, TakeIdleCoresOneAReplica) {
  EXPECT_TRUE(communication_threads({.cores = 2}).own);
  EXPECT_FALSE(communication_threads({.cores = 1}).own);
  EXPECT_FALSE(communication_threads({.cores = 3, .replicas = 2}).own);
  EXPECT_TRUE(communication_threads({.cores = 4, .replicas = 2}).own);
  EXPECT_FALSE(communication_threads({.cores = 4, .replicas = 2, .threads = 2}).own);
  EXPECT_THAT(communication_threads({.cores = 2}).why, HasSubstr("idle cores"));
  EXPECT_THAT(communication_threads({.cores = 1}).why, HasSubstr("between layers"));
}

TEST(CommunicationThreads, ShareACoreForLongMessagesThatWakeThem) {
  const auto long_messages = communication_threads({.cores = 1, .sent = kMuch});
  EXPECT_TRUE(long_messages.own);
  EXPECT_THAT(long_messages.why, HasSubstr("104.9 MB a step"));
  EXPECT_FALSE(communication_threads({.cores = 1, .sent = kMuch, .wakes = false}).own);
  EXPECT_FALSE(communication_threads({.cores = 1, .sent = CommunicationThreads::kHeld}).own);
  EXPECT_FALSE(communication_threads({.cores = 2, .replicas = 2, .sent = kMuch}).own);
}

TEST(CommunicationThreads, AreHadOrNotAsAskedFor) {
  const auto none = communication_threads({.cores = 8, .sent = kMuch, .asked = false});
  const auto some = communication_threads({.cores = 1, .asked = true});
  EXPECT_FALSE(none.own);
  EXPECT_TRUE(some.own);
  EXPECT_THAT(none.why, HasSubstr("asked for"));
  EXPECT_THAT(some.why, HasSubstr("asked for"));
}

}  // namespace communication_threads_test
}  // namespace lockstep::strategies
