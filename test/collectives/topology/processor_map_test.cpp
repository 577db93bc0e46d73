// SPDX-License-Identifier: MIT
#include "collectives/topology/processor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/topology/binding.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace processor_map_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ProcessorMap, HoldsWhatMayRunThisThread) {
  const MachineMap map = processor_map();
  EXPECT_EQ(numbers(map), allowed_processors());
  ASSERT_FALSE(map.nodes.empty());
  for (const PlacedProcessor& one : map.processors) {
    EXPECT_LE(one.core, one.number);
    EXPECT_EQ(std::ranges::count(map.nodes, one.node, &NumaNode::number), 1);
  }
}

TEST(ProcessorMap, APartKeepsItsNodesAndLearnsOfStrangers) {
  const MachineMap map{
      {{0, 0, 0, 0}, {1, 0, 0, 0}, {2, 2, 2, 3}, {3, 2, 2, 3}}, {{0, 100}, {3, 200}}, 5};
  const MachineMap part = part_of(map, std::vector<int>{3, 9});
  EXPECT_THAT(part.processors,
              ElementsAre(PlacedProcessor{3, 2, 2, 3}, PlacedProcessor{9, 9, 9, 0}));
  EXPECT_THAT(part.nodes, ElementsAre(NumaNode{0, 100}, NumaNode{3, 200}));
  EXPECT_EQ(part.last_cache, 5u);
  const auto first = part_of(map, std::vector<int>{0, 1}),
             rest = part_of(map, std::vector<int>{1, 2, 3});
  EXPECT_EQ(together(first, rest), map);
  EXPECT_EQ(node_of(map, std::vector<int>{2, 3}), 3);
  EXPECT_EQ(node_of(map, std::vector<int>{1, 2}), std::nullopt);
  EXPECT_EQ(node_of(map, {}), std::nullopt);
  EXPECT_THAT(describe_nodes(map), ElementsAre(HasSubstr("node 0: 2 processors on 1 core"),
                                               HasSubstr("node 3: 2 processors on 1 core")));
}

TEST(ProcessorMap, AMachineIsDescribedInALine) {
  if (!hwloc::available()) GTEST_SKIP() << "built without hwloc";
  const MachineMap map = hwloc::described_machine(
      "numa:2(memory=64GiB) l3:2(size=16MiB) core:2 "
      "pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)");
  ASSERT_EQ(map.processors.size(), 16u);
  ASSERT_EQ(map.nodes.size(), 2u);
  EXPECT_EQ(map.nodes[1], (NumaNode{1, std::size_t(64) << 30}));
  EXPECT_EQ(map.last_cache, std::size_t(16) << 20);
  EXPECT_EQ(map.processors[0], (PlacedProcessor{0, 0, 0, 0}));
  EXPECT_EQ(map.processors[7], (PlacedProcessor{7, 7, 6, 1}));
  EXPECT_EQ(map.processors[11], (PlacedProcessor{11, 3, 2, 0})) << "the hyperthread beside 3";
}

TEST(ProcessorMap, ABadDescriptionIsRefusedWithAReason) {
  if (!hwloc::available()) GTEST_SKIP() << "built without hwloc";
  const std::string long_one(2000, ' ');
  const std::pair<std::string, std::string> cases[] = {
      {"", "cannot read"},          {"numa:x", "cannot read"},
      {"(", "cannot read"},         {"numa:2 pu:99999999999999999999", "more than 4096"},
      {"pu:64 pu:65", "4096"},      {"numa:0 pu:2", "nothing in it"},
      {long_one, "it is too long"}, {"core:2 numa:2 gold:3", "cannot read"},
  };
  for (const auto& [text, reason] : cases) {
    try {
      hwloc::described_machine(text);
      ADD_FAILURE() << text;
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr(reason));
      EXPECT_THAT(error.what(), HasSubstr("write it like \"numa:2 core:4 pu:2\""));
    }
  }
}

TEST(ProcessorMap, WithoutHwlocADescriptionSaysWhatWouldReadIt) {
  if (hwloc::available()) GTEST_SKIP() << "built with hwloc";
  EXPECT_THROW(hwloc::described_machine("pu:2"), engine::Error);
  EXPECT_EQ(hwloc::version(), "");
}

}  // namespace processor_map_test
}  // namespace lockstep::collectives
