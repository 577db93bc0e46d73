// SPDX-License-Identifier: MIT
// The placement of variables' rows on servers. Most tests place a small classifier of two dense
// layers, in which one weight has 99 % of all bytes.
#include "strategies/parameter_server/cluster/variable_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "strategies/parameter_server/cluster/text_difference.h"

namespace lockstep::test {
namespace variable_placement_test {

using namespace strategies;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

VarInfo float32(const std::string& name, const engine::Shape& shape) {
  return {name, shape, shape.elements() * 4};
}

std::vector<VarInfo> classifier() {
  return {float32("w1", {784, 100}), float32("b1", {100}), float32("w2", {100, 10}),
          float32("b2", {10})};
}

std::vector<std::size_t> servers_of(const VariablePlacement& placement) {
  std::vector<std::size_t> servers;
  for (const PlacedShard& shard : placement.shards) servers.push_back(shard.server);
  return servers;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(VariablePlacement, ServersTakeTurnsInTheOrderOfCreation) {
  EXPECT_THAT(servers_of(place_variables(classifier(), 3, {})), ElementsAre(0, 1, 2, 0));
  std::vector<VarInfo> five;
  for (const char* name : {"a", "b", "c", "d", "e"}) five.push_back(float32(name, {2}));
  EXPECT_THAT(servers_of(place_variables(five, 2, {})), ElementsAre(0, 1, 0, 1, 0));
}

TEST(VariablePlacement, GreedyTakesTheServerWithTheFewestBytesAndOfSeveralTheLowest) {
  const auto turns = place_variables(classifier(), 2, {});
  EXPECT_THAT(turns.server_bytes, ElementsAre(313'600 + 4'000, 400 + 40));
  const auto greedy = place_variables(classifier(), 2, {GreedyBytes{}});
  EXPECT_THAT(servers_of(greedy), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(greedy.server_bytes, ElementsAre(313'600, 4'440));

  // A third server lowers the largest load only by the last bias, because w1 is one variable.
  EXPECT_EQ(place_variables(classifier(), 3, {}).server_bytes[0], 313'640);
  const auto three = place_variables(classifier(), 3, {GreedyBytes{}});
  EXPECT_THAT(servers_of(three), ElementsAre(0, 1, 2, 1));
  EXPECT_EQ(std::ranges::max(three.server_bytes), 313'600);

  const std::vector<VarInfo> alike{float32("a", {4}), float32("b", {4}), float32("c", {4})};
  EXPECT_THAT(servers_of(place_variables(alike, 2, {GreedyBytes{}})), ElementsAre(0, 1, 0));
}

TEST(VariablePlacement, CutInThreeTheLargestWeightMakesLoadsEven) {
  PlacementRules rules{GreedyBytes{}};
  rules.partitioner_of["w1"] = FixedShards{3};
  const auto placement = place_variables(classifier(), 3, rules);
  EXPECT_THAT(servers_of(placement), ElementsAre(0, 1, 2, 1, 2, 0));
  EXPECT_EQ(placement.shards[0].bytes, 262 * 400);
  EXPECT_EQ(placement.shards[1].bytes, 261 * 400);
  const auto [least, most] = std::ranges::minmax(placement.server_bytes);
  EXPECT_LT(double(most) / double(least), 1.1);
}

TEST(VariablePlacement, ABillionRowsAreCutWithoutTakingMemory) {
  const PlacementRules rules{RoundRobin{}, FixedShards{3}};
  const auto placement = place_variables({float32("embedding", {1'000'000'000, 20})}, 3, rules);
  ASSERT_EQ(placement.shards.size(), 3u);
  std::size_t at = 0, bytes = 0;
  for (std::size_t s = 0; s < 3; ++s) {
    const PlacedShard& shard = placement.shards[s];
    EXPECT_EQ(shard.server, s);
    EXPECT_EQ(shard.rows.begin, at);
    EXPECT_EQ(shard.rows.size(), s == 0 ? 333'333'334 : 333'333'333);
    at = shard.rows.end;
    bytes += shard.bytes;
  }
  EXPECT_EQ(at, 1'000'000'000u);
  EXPECT_EQ(bytes, 80'000'000'000u);
}

// For any partition, shards cover the rows in order. Their sizes differ by at most one row, and
// larger shards come first.
TEST(Partition, ShardsFollowEachOtherAndDifferByOneRowAtMost) {
  engine::Random random(1);
  for (int round = 0; round < 2'000; ++round) {
    const std::size_t rows = 1 + random.below(1'000), shards = 1 + random.below(rows);
    const std::vector<engine::Range> cuts = cut_rows(rows, shards);
    ASSERT_EQ(cuts.size(), shards);
    EXPECT_EQ(cuts.front().begin, 0u);
    EXPECT_EQ(cuts.back().end, rows);
    for (std::size_t s = 0; s + 1 < shards; ++s) {
      EXPECT_EQ(cuts[s].end, cuts[s + 1].begin);
      EXPECT_LE(cuts[s + 1].size(), cuts[s].size());
    }
    EXPECT_GE(cuts.back().size() + 1, cuts.front().size());
    EXPECT_GT(cuts.back().size(), 0u);
  }
  EXPECT_THAT(error_of([] { cut_rows(3, 4); }), "3 rows cannot be cut into 4 shards");
}

TEST(Partition, EachKindMakesAsManyShardsAsItSays) {
  const VarInfo w1 = float32("w1", {784, 100});  // 400 bytes per row
  EXPECT_EQ(shards_of(WholeVariables{}, w1, 3), 1u);
  EXPECT_EQ(shards_of(FixedShards{5}, w1, 3), 5u);
  EXPECT_EQ(shards_of(FixedShards{900}, w1, 3), 784u);
  EXPECT_EQ(shards_of(FixedShards{3}, float32("scalar", {}), 3), 1u);

  EXPECT_EQ(shards_of(MinShardBytes{100'000}, w1, 4), 3u);
  EXPECT_EQ(shards_of(MinShardBytes{100'000}, w1, 2), 2u);  // at most one per server
  EXPECT_EQ(shards_of(MinShardBytes{1}, w1, 4), 4u);
  EXPECT_EQ(shards_of(MinShardBytes{1'000'000}, w1, 4), 1u);

  EXPECT_EQ(shards_of(MaxShardBytes{104'800}, w1, 2), 3u);
  EXPECT_EQ(shards_of(MaxShardBytes{104'799}, w1, 2),
            4u);  // 261 rows per shard at most
  EXPECT_EQ(shards_of(MaxShardBytes{1'000'000}, w1, 2), 1u);
  EXPECT_EQ(shards_of(MaxShardBytes{1}, w1, 2), 784u);  // at least one row per shard
}

// Every shard obeys the bound, and one shard more, or less, would break it.
TEST(Partition, BoundsOfBytesHoldForEveryShard) {
  engine::Random random(2);
  for (int round = 0; round < 2'000; ++round) {
    const std::size_t rows = 1 + random.below(300), row = 4 * (1 + random.below(20));
    const std::size_t bound = 1 + random.below(rows * row + 10);
    const std::size_t servers = 1 + random.below(10);
    const VarInfo variable{"v", {rows, row / 4}, rows * row};
    const std::size_t few = shards_of(MaxShardBytes{bound}, variable, servers);
    if (bound >= row) {
      EXPECT_LE(cut_rows(rows, few).front().size() * row, bound);
      if (few > 1) {
        EXPECT_GT(cut_rows(rows, few - 1).front().size() * row, bound);
      }
    } else {
      EXPECT_EQ(few, rows);
    }
    const std::size_t many = shards_of(MinShardBytes{bound}, variable, servers);
    EXPECT_LE(many, servers);
    if (many > 1) {
      EXPECT_GE(cut_rows(rows, many).back().size() * row, bound);
    }
    if (many < servers && many < rows) {
      EXPECT_LT(cut_rows(rows, many + 1).back().size() * row, bound);
    }
  }
}

TEST(Partition, WhatCannotBeCutIsNamed) {
  const VarInfo odd{"odd", {3, 2}, 25};
  EXPECT_THAT(error_of([&] { shards_of(WholeVariables{}, odd, 1); }),
              "variable odd of shape 3x2 cannot have 25 bytes: they must be the same for each of "
              "its 3 rows, and more than 0");
  const VarInfo empty{"empty", {0, 2}, 0};
  EXPECT_THAT(error_of([&] { shards_of(WholeVariables{}, empty, 1); }),
              StartsWith("variable empty of shape 0x2 cannot have 0 bytes"));
  const VarInfo good = float32("good", {2});
  EXPECT_THAT(error_of([&] { shards_of(FixedShards{0}, good, 1); }),
              "variable good cannot be cut into 0 shards");
  EXPECT_THAT(error_of([&] { shards_of(MinShardBytes{0}, good, 1); }), HasSubstr("good"));
  EXPECT_THAT(error_of([&] { shards_of(MaxShardBytes{0}, good, 1); }), HasSubstr("good"));
}

// A pin takes precedence over a partitioner, which takes precedence over the placer. If the placer
// returns no task, the round-robin order decides.
TEST(VariablePlacement, ThePinComesFirstThenThePartitionerThenThePlacerThenTheTurns) {
  const VarInfo v = float32("v", {6, 2}), other = float32("other", {1});
  const PlacementFunction to_two = [](const VarInfo&) { return parse_task_name("/job:ps/task:2"); };
  const PlacementFunction silent = [](const VarInfo&) { return TaskName{}; };
  const struct {
    bool pin, partitioner;
    Placer placer;
    std::vector<std::size_t> servers;  // one entry per shard of v
  } rows[] = {
      {true, true, to_two, {1}},         {true, true, silent, {1}},
      {true, false, to_two, {1}},        {true, false, GreedyBytes{}, {1}},
      {false, true, to_two, {2, 2, 2}},  {false, true, silent, {1, 2, 0}},
      {false, false, to_two, {2}},       {false, false, silent, {1}},
      {false, false, RoundRobin{}, {1}}, {false, true, GreedyBytes{}, {1, 2, 0}},
  };
  for (const auto& row : rows) {
    PlacementRules rules{row.placer};
    if (row.pin) rules.pins["v"] = parse_task_name("/task:1");
    if (row.partitioner) rules.partitioner = FixedShards{3};
    std::vector<std::size_t> servers = servers_of(place_variables({other, v}, 3, rules));
    servers.erase(servers.begin());
    EXPECT_EQ(servers, row.servers) << row.pin << row.partitioner << row.placer.index();
  }
}

TEST(VariablePlacement, WhatIsPinnedTakesNoTurnButCountsInBytes) {
  PlacementRules turns;
  turns.pins["b1"] = parse_task_name("/job:ps/task:2");
  EXPECT_THAT(servers_of(place_variables(classifier(), 3, turns)), ElementsAre(0, 2, 1, 2));
  PlacementRules greedy{GreedyBytes{}};
  greedy.pins["w1"] = parse_task_name("/job:ps");  // means task 0
  EXPECT_THAT(servers_of(place_variables(classifier(), 2, greedy)), ElementsAre(0, 1, 1, 1));
}

TEST(VariablePlacement, AFunctionSeesEachShardInTurn) {
  std::vector<std::string> seen;
  PlacementRules rules{PlacementFunction([&](const VarInfo& shard) {
    seen.push_back(fmt::format("{} {}/{} {} {} {}{}", shard.name, shard.shard, shard.shards,
                               to_string(shard.shape), shard.bytes, shard.trainable ? "t" : "",
                               shard.sparse ? "s" : ""));
    return TaskName{};
  })};
  rules.partitioner_of["e"] = FixedShards{2};
  VarInfo table = float32("e", {5, 2, 3});
  table.sparse = true;
  VarInfo fixed = float32("mean", {});
  fixed.trainable = false;
  place_variables({table, fixed}, 2, rules);
  EXPECT_THAT(seen, ElementsAre("e 0/2 3x2x3 72 ts", "e 1/2 2x2x3 48 ts", "mean 0/1 scalar 4 "));
}

TEST(VariablePlacement, ATaskThatIsNoServerIsAnErrorThatNamesTheVariable) {
  const auto with_function = [](const char* name, std::size_t servers) {
    return error_of([&] {
      const PlacementFunction function = [&](const VarInfo&) { return parse_task_name(name); };
      place_variables(classifier(), servers, {function});
    });
  };
  EXPECT_EQ(with_function("/job:ps/task:3", 3),
            "the placement function puts variable w1 on /job:ps/task:3, which is no server: "
            "servers are /job:ps/task:0 to /job:ps/task:2");
  EXPECT_EQ(with_function("/job:worker", 1),
            "the placement function puts variable w1 on /job:worker, which is no server: the only "
            "server is /job:ps/task:0");
  EXPECT_EQ(with_function("/gpu:0", 1),
            "the placement function puts variable w1 on /gpu:0: servers keep variables in memory, "
            "which is cpu:0");
  EXPECT_EQ(with_function("/cpu:0", 1), "no error");
  EXPECT_EQ(error_of([] { place_variables(classifier(), 1, {PlacementFunction()}); }),
            "variable w1 has no place: the placement function is empty");
  PlacementRules rules;
  rules.pins["w2"] = parse_task_name("/task:7");
  EXPECT_THAT(error_of([&] { place_variables(classifier(), 2, rules); }),
              StartsWith("a pin puts variable w2 on /task:7, which is no server"));
}

TEST(VariablePlacement, NamesMustBeThereAndBeDifferent) {
  const auto of = [](std::vector<VarInfo> variables, const PlacementRules& rules = {}) {
    return error_of([&] { place_variables(std::move(variables), 2, rules); });
  };
  EXPECT_EQ(of({float32("a", {1}), float32("a", {2})}), "there are two variables named a");
  EXPECT_EQ(of({float32("", {3})}), "a variable of shape 3 has no name");
  PlacementRules pins, cuts;
  pins.pins["w9"] = parse_task_name("/task:1");
  EXPECT_EQ(of(classifier(), pins), "w9 is pinned to /task:1, but there is no such variable");
  cuts.partitioner_of["w9"] = FixedShards{3};
  EXPECT_EQ(of(classifier(), cuts), "w9 is to be cut into shards, but there is no such variable");
  EXPECT_EQ(error_of([] { place_variables(classifier(), 0, {}); }),
            "variables need at least one server");
}

// For random variables, servers and rules, every row lies in exactly one shard. A server's bytes
// are the sum of its shards, which are numbered from 0. A second call returns the same placement.
TEST(VariablePlacement, EveryRowLiesInOneShardAndTheSumsAreRight) {
  engine::Random random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<VarInfo> variables;
    const std::size_t servers = 1 + random.below(6);
    for (std::size_t v = 0, count = random.below(12); v < count; ++v)
      variables.push_back(
          float32(fmt::format("v{}", v), {1 + random.below(50), 1 + random.below(9)}));
    PlacementRules rules;
    if (random.below(2) == 0) rules.placer = GreedyBytes{};
    const std::size_t bytes = 1 + random.below(500);
    rules.partitioner =
        std::array<Partitioner, 4>{WholeVariables{}, FixedShards{1 + random.below(9)},
                                   MinShardBytes{bytes}, MaxShardBytes{bytes}}[random.below(4)];
    const auto placement = place_variables(variables, servers, rules);
    EXPECT_EQ(hash_of(placement), hash_of(place_variables(variables, servers, rules)));
    std::vector<std::size_t> sums(servers), numbers(servers), rows(variables.size());
    for (const PlacedShard& shard : placement.shards) {
      EXPECT_EQ(shard.rows.begin, rows[shard.variable]);
      rows[shard.variable] = shard.rows.end;
      EXPECT_EQ(shard.bytes, variables[shard.variable].bytes / variables[shard.variable].shape[0] *
                                 shard.rows.size());
      EXPECT_EQ(shard.number, numbers[shard.server]++);
      sums[shard.server] += shard.bytes;
    }
    for (std::size_t v = 0; v < variables.size(); ++v) EXPECT_EQ(rows[v], variables[v].shape[0]);
    EXPECT_EQ(sums, placement.server_bytes);
  }
}

TEST(VariablePlacement, TheTableEndsWithTheBytesOfEachServer) {
  PlacementRules rules;
  rules.partitioner_of["w1"] = FixedShards{2};
  EXPECT_EQ(placement_table(place_variables(classifier(), 2, rules)),
            "variable  shape       rows   bytes  server\n"
            "w1        784x100    0-391  156800       0\n"
            "w1        784x100  392-783  156800       1\n"
            "b1        100         0-99     400       0\n"
            "w2        100x10      0-99    4000       1\n"
            "b2        10           0-9      40       0\n"
            "bytes of each server: 0: 157240, 1: 160800");
}

TEST(VariablePlacement, OrdersThatDifferAreBothShown) {
  std::vector<VarInfo> swapped = classifier();
  std::swap(swapped[1], swapped[2]);
  const auto mine = place_variables(classifier(), 2, {});
  const auto theirs = place_variables(swapped, 2, {});
  EXPECT_NE(hash_of(mine), hash_of(theirs));
  EXPECT_EQ(text_difference("variables lie differently", {"the chief", describe(mine)},
                            {"worker 1", describe(theirs)}),
            "variables lie differently: in line 3 the chief has '1 b1 100, 400 bytes: rows 0-99 on "
            "server 1', worker 1 has '1 w2 100x10, 4000 bytes: rows 0-99 on server 1'\n"
            "the chief:\n"
            "4 variables on 2 servers\n"
            "0 w1 784x100, 313600 bytes: rows 0-783 on server 0\n"
            "1 b1 100, 400 bytes: rows 0-99 on server 1\n"
            "2 w2 100x10, 4000 bytes: rows 0-99 on server 0\n"
            "3 b2 10, 40 bytes: rows 0-9 on server 1\n"
            "worker 1:\n"
            "4 variables on 2 servers\n"
            "0 w1 784x100, 313600 bytes: rows 0-783 on server 0\n"
            "1 w2 100x10, 4000 bytes: rows 0-99 on server 1\n"
            "2 b1 100, 400 bytes: rows 0-99 on server 0\n"
            "3 b2 10, 40 bytes: rows 0-9 on server 1");
}

// The text, and so the hash, has every property that two tasks could disagree on.
TEST(VariablePlacement, EveryDifferenceChangesTheText) {
  const auto base = place_variables(classifier(), 2, {});
  const auto differs = [&](std::size_t servers, const PlacementRules& rules, auto change) {
    std::vector<VarInfo> variables = classifier();
    change(variables.back());
    const auto other = place_variables(variables, servers, rules);
    EXPECT_NE(describe(base), describe(other));
    EXPECT_NE(hash_of(base), hash_of(other));
  };
  const auto nothing = [](VarInfo&) {};
  differs(3, {}, nothing);
  differs(2, {GreedyBytes{}}, nothing);
  differs(2, {RoundRobin{}, FixedShards{2}}, nothing);
  differs(2, {}, [](VarInfo& v) { v.name = "c2"; });
  differs(2, {}, [](VarInfo& v) { v.shape = {5, 2}; });
  differs(2, {}, [](VarInfo& v) { v.bytes *= 2; });
  differs(2, {}, [](VarInfo& v) { v.trainable = false; });
  differs(2, {}, [](VarInfo& v) { v.sparse = true; });
  differs(2, {}, [](VarInfo& v) { v.decays = false; });
}

TEST(TextDifference, EqualTextsHaveNoneAndAMissingLineIsSaid) {
  EXPECT_EQ(text_difference("what", {"a", "1\n2\n"}, {"b", "1\n2\n"}), "");
  EXPECT_EQ(text_difference("what", {"a", "1\n2\n"}, {"b", "1\n"}),
            "what: in line 2 a has '2', b has nothing\na:\n1\n2\nb:\n1");
}

}  // namespace variable_placement_test
}  // namespace lockstep::test
