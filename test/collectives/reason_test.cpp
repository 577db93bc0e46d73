// SPDX-License-Identifier: MIT
// The words for why one all-reduce is faster than another.
#include "collectives/reason.h"

#include <gtest/gtest.h>

namespace lockstep::collectives {
namespace reason_test {

constexpr double kUs = 1e-6, kKiB = 1024;

TEST(Reason, IsWhatIsNeededLess) {
  EXPECT_EQ(
      reason({.seconds = 20 * kUs, .wire_seconds = 15 * kUs, .wire_bytes = 44 * kKiB},
             {.seconds = 30 * kUs, .wire_seconds = 25 * kUs, .wire_bytes = 64 * kKiB}, "ring"),
      "it sends 44 KiB from a host (15.0 us of the wire), ring 64 KiB (25.0 us)");
  EXPECT_EQ(reason({.seconds = 20 * kUs, .round_seconds = 10 * kUs, .rounds = 1},
                   {.seconds = 30 * kUs, .round_seconds = 20 * kUs, .rounds = 2}, "ring"),
            "it has 1 signal or message (10.0 us), ring 2 (20.0 us)");
  EXPECT_EQ(reason({.seconds = 20 * kUs, .round_seconds = 10 * kUs, .rounds = 5},
                   {.seconds = 30 * kUs, .round_seconds = 20 * kUs, .rounds = 5}, "ring"),
            "its 5 signals and messages one after the other take 10.0 us, those of ring 20.0 us");
  EXPECT_EQ(reason({.seconds = 20 * kUs, .part_seconds = 15 * kUs, .memory_bytes = 100},
                   {.seconds = 30 * kUs, .part_seconds = 25 * kUs, .memory_bytes = 200}, "ring"),
            "it moves 100 bytes through the memory of a host (15.0 us), ring 200 bytes (25.0 us)");
  EXPECT_EQ(
      reason({.seconds = 20 * kUs, .part_seconds = 15 * kUs, .part = HostPart::kLink},
             {.seconds = 30 * kUs, .part_seconds = 25 * kUs, .part = HostPart::kPort}, "ring"),
      "it needs a link between two devices for 15.0 us, ring the port of a device for 25.0 us");
}

// Of work the bytes that make it are named, of which there are fewer.
TEST(Reason, OfLessWorkIsWhatMakesIt) {
  Price mine{.seconds = 20 * kUs, .work_seconds = 15 * kUs, .wire_bytes = 100, .memory_bytes = 700};
  Price than{.seconds = 30 * kUs, .work_seconds = 25 * kUs, .wire_bytes = 100, .memory_bytes = 700};
  EXPECT_EQ(reason(mine, than, "ring"),
            "its busiest rank works for 15.0 us, that of ring for 25.0 us");
  than.memory_bytes = 900;
  EXPECT_EQ(
      reason(mine, than, "ring"),
      "it moves 700 bytes through the memory of a host, ring 900 bytes: its busiest rank works "
      "for 15.0 us instead of 25.0 us");
  than.wire_bytes = 200;
  EXPECT_EQ(reason(mine, than, "ring"),
            "it sends 100 bytes from a host, ring 200 bytes: its busiest rank works for 15.0 us "
            "instead of 25.0 us");
  mine.part = than.part = HostPart::kProcessors;
  mine.part_seconds = 15 * kUs, than.part_seconds = 25 * kUs, than.wire_bytes = 100;
  EXPECT_EQ(reason(mine, than, "ring"),
            "it moves 700 bytes through the memory of a host, ring 900 bytes: its processors work "
            "for 15.0 us instead of 25.0 us");
}

// A wire that is hardly used is no reason, though fewer bytes are sent.
TEST(Reason, IsOfWhatTakesTheTime) {
  EXPECT_EQ(reason({.seconds = 60 * kUs,
                    .wire_seconds = 1 * kUs,
                    .round_seconds = 56 * kUs,
                    .wire_bytes = 10,
                    .rounds = 4},
                   {.seconds = 65 * kUs,
                    .wire_seconds = 9 * kUs,
                    .round_seconds = 60 * kUs,
                    .wire_bytes = 90,
                    .rounds = 6},
                   "ring"),
            "it has 4 signals and messages one after the other (56.0 us), ring 6 (60.0 us)");
}

TEST(Reason, WhereNothingIsSavedIsHowTheLimitIsUsed) {
  Price mine{.seconds = 53 * kUs, .wire_seconds = 52 * kUs}, than = mine;
  than.seconds = 64 * kUs;
  EXPECT_EQ(
      reason(mine, than, "ring"),
      "the wire is the limit: it is idle for 1.0 us of 53.0 us, with ring for 12.0 us of 64.0 "
      "us");
  // Also where something else is saved, which is not the limit of either.
  than.seconds = 54 * kUs, than.work_seconds = 30 * kUs, mine.work_seconds = 20 * kUs;
  EXPECT_EQ(reason(mine, than, "ring"),
            "the wire is the limit: it is idle for 1.0 us of 53.0 us, with ring for 2.0 us of 54.0 "
            "us");
  mine = {.seconds = 50 * kUs, .part_seconds = 30 * kUs, .part = HostPart::kProcessors};
  than = mine, than.seconds = 60 * kUs;
  EXPECT_EQ(reason(mine, than, "ring"),
            "the processors of a host are needed most: they are idle for 20.0 us of 50.0 us, with "
            "ring for 30.0 us of 60.0 us");
  mine = {.seconds = 50 * kUs, .round_seconds = 40 * kUs, .rounds = 4};
  than = mine, than.seconds = 60 * kUs;
  EXPECT_EQ(reason(mine, than, "ring"),
            "4 signals and messages one after the other take 40.0 us: all else takes 10.0 us more, "
            "with ring 20.0 us");
}

// The thread of a device's rank waits for its links, which are the reason then.
TEST(Reason, OfDevicesIsTheirLinksAndNotTheThreadThatWaitsForThem) {
  const Price mine{.seconds = 25 * kUs,
                   .part_seconds = 24 * kUs,
                   .work_seconds = 25 * kUs,
                   .part = HostPart::kLink};
  Price than = mine;
  than.seconds = than.work_seconds = 45 * kUs;
  EXPECT_EQ(reason(mine, than, "ring"),
            "a link between two devices is the limit: it is idle for 1.0 us of 25.0 us, with ring "
            "for 21.0 us of 45.0 us");
}

}  // namespace reason_test
}  // namespace lockstep::collectives
