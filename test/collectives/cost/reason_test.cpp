// SPDX-License-Identifier: MIT
// The texts that say why one all-reduce is faster than another.
#include "collectives/cost/reason.h"

#include <gtest/gtest.h>

namespace lockstep::collectives {
namespace reason_test {

constexpr double kUs = 1e-6, kKiB = 1024;

TEST(Reason, IsWhatIsNeededLess) {
  EXPECT_EQ(
      reason("direct", {.seconds = 20 * kUs, .wire_seconds = 15 * kUs, .wire_bytes = 44 * kKiB},
             "ring", {.seconds = 30 * kUs, .wire_seconds = 25 * kUs, .wire_bytes = 64 * kKiB}),
      "direct sends 44 KiB per host, ring 64 KiB");
  EXPECT_EQ(reason("direct", {.seconds = 20 * kUs, .round_seconds = 10 * kUs, .rounds = 1}, "ring",
                   {.seconds = 30 * kUs, .round_seconds = 20 * kUs, .rounds = 2}),
            "direct needs 1 communication round, ring 2");
  EXPECT_EQ(reason("direct", {.seconds = 20 * kUs, .round_seconds = 10 * kUs, .rounds = 5}, "ring",
                   {.seconds = 30 * kUs, .round_seconds = 20 * kUs, .rounds = 5}),
            "direct's communication rounds take 10.0 us, ring's 20.0 us");
  EXPECT_EQ(reason("direct", {.seconds = 20 * kUs, .part_seconds = 15 * kUs, .memory_bytes = 100},
                   "ring", {.seconds = 30 * kUs, .part_seconds = 25 * kUs, .memory_bytes = 200}),
            "direct moves 100 bytes through memory, ring 200 bytes");
  EXPECT_EQ(
      reason("direct", {.seconds = 20 * kUs, .part_seconds = 15 * kUs, .part = HostPart::kLink},
             "ring", {.seconds = 30 * kUs, .part_seconds = 25 * kUs, .part = HostPart::kPort}),
      "direct is limited by a link between two devices (15.0 us), ring by the port of a device "
      "(25.0 us)");
}

// Trials that agree with the costs scale the amounts, so that these add up to the predicted times.
TEST(Reason, HasTheTimesOfTrials) {
  const Price mine{.seconds = 40 * kUs, .work_seconds = 10 * kUs, .trial = 2};
  EXPECT_EQ(
      reason("direct", mine, "ring", {.seconds = 90 * kUs, .work_seconds = 20 * kUs, .trial = 3}),
      "direct keeps its busiest rank busy for 20.0 us, ring for 60.0 us");
  EXPECT_EQ(reason("direct", mine, "ring", {.seconds = 60 * kUs, .trial = 4}),
            "measured on these ranks: direct takes 40.0 us, ring 60.0 us");
}

// If less work is the reason, the text names the kind of bytes that cause it, if there are fewer of
// them.
TEST(Reason, OfLessWorkIsWhatMakesIt) {
  Price mine{.seconds = 20 * kUs, .work_seconds = 15 * kUs, .wire_bytes = 100, .memory_bytes = 700};
  Price than{.seconds = 30 * kUs, .work_seconds = 25 * kUs, .wire_bytes = 100, .memory_bytes = 700};
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "direct keeps its busiest rank busy for 15.0 us, ring for 25.0 us");
  than.memory_bytes = 900;
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "direct moves 700 bytes through memory, ring 900 bytes");
  than.wire_bytes = 200;
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "direct sends 100 bytes per host, ring 200 bytes");
  mine.part = than.part = HostPart::kProcessors;
  mine.part_seconds = 15 * kUs, than.part_seconds = 25 * kUs, than.wire_bytes = 100;
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "direct moves 700 bytes through memory, ring 900 bytes");
}

TEST(Reason, HasTimesThatDiffer) {
  EXPECT_EQ(reason("direct", {.seconds = 0.44 * kUs, .work_seconds = 0.38 * kUs}, "ring",
                   {.seconds = 0.48 * kUs, .work_seconds = 0.42 * kUs}),
            "direct keeps its busiest rank busy for 0.38 us, ring for 0.42 us");
  EXPECT_EQ(reason("direct", {.seconds = 15e-3, .work_seconds = 12.341e-3}, "ring",
                   {.seconds = 16e-3, .work_seconds = 12.344e-3}),
            "direct waits for 2.66 ms, ring for 3.66 ms");
}

// Fewer bytes are no reason if the wire is hardly used.
TEST(Reason, IsOfWhatTakesTheTime) {
  EXPECT_EQ(reason("direct",
                   {.seconds = 60 * kUs,
                    .wire_seconds = 1 * kUs,
                    .round_seconds = 56 * kUs,
                    .wire_bytes = 10,
                    .rounds = 4},
                   "ring",
                   {.seconds = 65 * kUs,
                    .wire_seconds = 9 * kUs,
                    .round_seconds = 60 * kUs,
                    .wire_bytes = 90,
                    .rounds = 6}),
            "direct needs 4 communication rounds, ring 6");
}

TEST(Reason, WhereNothingIsSavedIsHowTheLimitIsUsed) {
  Price mine{.seconds = 53 * kUs, .wire_seconds = 52 * kUs}, than = mine;
  than.seconds = 64 * kUs;
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "the wire limits direct: direct leaves it idle for 1.0 us, ring for 12.0 us");
  // The wire stays the reason if something else is saved that limits neither algorithm.
  than.seconds = 54 * kUs, than.work_seconds = 30 * kUs, mine.work_seconds = 20 * kUs;
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "the wire limits both: direct leaves it idle for 1.0 us, ring for 2.0 us");
  mine = {.seconds = 50 * kUs, .part_seconds = 30 * kUs, .part = HostPart::kProcessors};
  than = mine, than.seconds = 60 * kUs;
  EXPECT_EQ(reason("direct", mine, "ring", than), "direct waits for 20.0 us, ring for 30.0 us");
  mine = {.seconds = 50 * kUs, .round_seconds = 40 * kUs, .rounds = 4};
  than = mine, than.seconds = 60 * kUs;
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "besides its communication rounds, direct takes 10.0 us, ring 20.0 us");
}

// The links of a device are the reason, and not the thread of its rank, which waits for them.
TEST(Reason, OfDevicesIsTheirLinksAndNotTheThreadThatWaitsForThem) {
  const Price mine{.seconds = 25 * kUs,
                   .part_seconds = 24 * kUs,
                   .work_seconds = 25 * kUs,
                   .part = HostPart::kLink};
  Price than = mine;
  than.seconds = than.work_seconds = 45 * kUs;
  EXPECT_EQ(reason("direct", mine, "ring", than),
            "a link between two devices limits direct: direct leaves it idle for 1.0 us, ring for "
            "21.0 us");
}

}  // namespace reason_test
}  // namespace lockstep::collectives
