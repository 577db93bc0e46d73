// SPDX-License-Identifier: MIT
// Scopes pin the variables that are created in them.
#include "strategies/parameter_server/cluster/placement_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace lockstep::test {
namespace placement_builder_test {

using namespace strategies;

VarInfo scalar(const std::string& name) {
  return {name, {}, 4};
}

std::string placed(const VariablePlacement& placement) {
  std::string text;
  for (const PlacedShard& shard : placement.shards)
    text += fmt::format("{}:{} ", placement.variables[shard.variable].name, shard.server);
  return text;
}

TEST(PlacementBuilder, VariablesArePinnedByTheScopesThatAreOpen) {
  PlacementBuilder builder;
  builder.add(scalar("before"));
  {
    const PlacementScope servers(builder, "/job:ps");
    builder.add(scalar("outer"));
    {
      const PlacementScope second(builder, "/task:1");
      EXPECT_EQ(to_string(builder.here()), "/job:ps/task:1");
      const PlacementScope device(builder, "/cpu:0");
      EXPECT_EQ(to_string(builder.here()), "/job:ps/task:1/cpu:0");
      builder.add(scalar("inner"));
      const PlacementScope third(builder, "/task:2");
      builder.add(scalar("innermost"));
    }
    EXPECT_EQ(to_string(builder.here()), "/job:ps");
    builder.add(scalar("outer again"));
  }
  EXPECT_EQ(to_string(builder.here()), "");
  builder.add(scalar("after"));
  EXPECT_EQ(placed(builder.place(3)),
            "before:0 outer:0 inner:1 innermost:2 outer again:0 after:1 ");
}

TEST(PlacementBuilder, AScopeThatNamesOnlyADevicePinsNothing) {
  PlacementBuilder builder;
  const PlacementScope device(builder, "/cpu:0");
  builder.add(scalar("a"));
  builder.add(scalar("b"));
  EXPECT_EQ(placed(builder.place(2)), "a:0 b:1 ");
}

TEST(PlacementBuilder, PinsOfTheRulesWinOverScopes) {
  PlacementBuilder builder;
  const PlacementScope servers(builder, "/job:ps/task:1");
  builder.add(scalar("a"));
  builder.add(scalar("b"));
  PlacementRules rules;
  rules.pins["b"] = parse_task_name("/task:2");
  EXPECT_EQ(placed(builder.place(3, rules)), "a:1 b:2 ");
}

TEST(PlacementBuilder, AScopeOutsideTheServersIsAnErrorThatNamesTheVariable) {
  PlacementBuilder builder;
  const PlacementScope workers(builder, "/job:worker");
  builder.add(scalar("a"));
  EXPECT_THROW(
      {
        try {
          builder.place(1);
        } catch (const engine::Error& error) {
          EXPECT_STREQ(error.what(),
                       "a pin puts variable a on /job:worker, which is no server: the only server "
                       "is /job:ps/task:0");
          throw;
        }
      },
      engine::Error);
}

}  // namespace placement_builder_test
}  // namespace lockstep::test
