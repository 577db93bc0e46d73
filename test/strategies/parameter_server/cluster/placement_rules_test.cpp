// SPDX-License-Identifier: MIT
// Flags set the rules for placing and partitioning variables.
#include "strategies/parameter_server/cluster/placement_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace lockstep::test {
namespace placement_rules_test {

using namespace strategies;

std::string error_of(std::string_view text, bool partition) {
  try {
    if (partition)
      parse_partition(text);
    else
      parse_placement(text);
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(PlacementRules, PlacersHaveNames) {
  EXPECT_TRUE(std::holds_alternative<RoundRobin>(parse_placement("round_robin")));
  EXPECT_TRUE(std::holds_alternative<GreedyBytes>(parse_placement("greedy")));
  for (const char* text : {"", "Greedy", "greedy ", "roundrobin"})
    EXPECT_EQ(error_of(text, false), fmt::format("'{}' is no way to place variables: write "
                                                 "round_robin or greedy",
                                                 text));
}

TEST(PlacementRules, PartitionersAreReadWithTheirSizes) {
  EXPECT_TRUE(std::holds_alternative<WholeVariables>(parse_partition("none")));
  EXPECT_EQ(std::get<FixedShards>(parse_partition("fixed:3")).shards, 3u);
  EXPECT_EQ(std::get<MinShardBytes>(parse_partition("min:64KiB")).bytes, 65'536u);
  EXPECT_EQ(std::get<MinShardBytes>(parse_partition("min:100")).bytes, 100u);
  EXPECT_EQ(std::get<MaxShardBytes>(parse_partition("max:4MiB")).bytes, 4'194'304u);
  EXPECT_EQ(std::get<MaxShardBytes>(parse_partition("max:1.5k")).bytes, 1'536u);
}

TEST(PlacementRules, WhatIsNoPartitionerSaysWhatCouldBe) {
  const std::string could = "write none, fixed:SHARDS, min:BYTES or max:BYTES, e.g. max:4MiB";
  for (const char* text : {"", "fixed", "3", "most:4k", "none:1", "Fixed:3"})
    EXPECT_EQ(error_of(text, true),
              fmt::format("'{}' is no way to cut variables: {}", text, could));
  for (const char* number : {"", "0", "-1", "3x", " 3", "99999999999999999999"})
    EXPECT_EQ(error_of(fmt::format("fixed:{}", number), true),
              fmt::format("'fixed:{}' is no way to cut variables: '{}' is no number of shards "
                          "from 1 on; {}",
                          number, number, could));
  EXPECT_EQ(error_of("min:4q", true),
            "'min:4q' is no way to cut variables: '4q' is no size: write e.g. 65536, 64k, 64KiB or "
            "1.5m");
  EXPECT_EQ(error_of("max:0", true),
            "'max:0' is no way to cut variables: shards need at least 1 byte");
}

}  // namespace placement_rules_test
}  // namespace lockstep::test
