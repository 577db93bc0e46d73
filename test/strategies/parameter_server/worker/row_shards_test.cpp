// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/row_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace lockstep::test {
namespace row_shards_test {

using namespace strategies;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kColumns = 4;

// Returns a dense parameter and a table of ten rows. Six of them are in the arena from element 32.
std::vector<engine::Parameter> layout() {
  engine::Parameter dense, table;
  dense.name = "dense.weight";
  dense.shape = dense.whole = {8, 4};
  dense.range = {0, 32};
  table.name = "table.weight";
  table.shape = {6, kColumns};
  table.whole = {10, kColumns};
  table.range = {32, 56};
  table.sparse = table.compact = true;
  return {dense, table};
}

VariablePlacement placed(std::size_t servers, std::size_t shards) {
  std::vector<VarInfo> variables;
  for (const engine::Parameter& p : layout())
    variables.push_back({p.name, p.whole, p.whole.elements() * 4, true, p.compact});
  PlacementRules rules;
  rules.partitioner_of["table.weight"] = FixedShards{shards};
  return place_variables(std::move(variables), servers, rules);
}

TEST(RowShards, EachServerIsAskedForItsRowsAndTheyFollowEachOtherInTheArena) {
  const RowShards shards(layout(), placed(3, 3));  // rows 0-3, 4-6, 7-9
  ASSERT_EQ(shards.tables().size(), 1u);
  const std::vector<std::uint64_t> touched{0, 3, 4, 8, 9};
  const auto chunks = shards.chunks(0, touched);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_THAT(chunks[0].rows, ElementsAre(0, 3));
  EXPECT_THAT(chunks[1].rows, ElementsAre(4));
  EXPECT_THAT(chunks[2].rows, ElementsAre(8, 9));
  std::size_t next = 32;
  for (const RowChunk& chunk : chunks) {
    EXPECT_EQ(chunk.span.begin, next);
    EXPECT_EQ(chunk.span.size(), chunk.rows.size() * kColumns);
    next = chunk.span.end;
  }
  EXPECT_THAT((std::vector{chunks[0].server, chunks[1].server, chunks[2].server}),
              testing::UnorderedElementsAre(0, 1, 2));
}

TEST(RowShards, MessagesHoldSoManyRowsAndAShardWithoutAnyHasOne) {
  const RowShards shards(layout(), placed(2, 2));  // rows 0-4, 5-9
  const std::vector<std::uint64_t> touched{5, 6, 7, 8, 9};
  const auto chunks = shards.chunks(0, touched, 2);
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_THAT(chunks[0].rows, IsEmpty());
  EXPECT_THAT(chunks[1].rows, ElementsAre(5, 6));
  EXPECT_THAT(chunks[2].rows, ElementsAre(7, 8));
  EXPECT_THAT(chunks[3].rows, ElementsAre(9));
  EXPECT_EQ(chunks[3].span.end, 32 + 5 * kColumns);
  for (const RowChunk& none : shards.chunks(0, {})) EXPECT_TRUE(none.span.empty());
  EXPECT_EQ(shards.most_rows(0), 5u);
  EXPECT_EQ(RowShards(layout(), placed(1, 1)).most_rows(0), 6u) << "not more than a batch touches";
}

TEST(RowShards, PartsAreTheWholeTableOnce) {
  const RowShards shards(layout(), placed(2, 3));
  std::size_t next = 0;
  for (const ShardPart& part : shards.parts(0, 7)) {
    EXPECT_EQ(part.offset, next);
    EXPECT_LE(part.size(), 7u);
    next += part.size();
  }
  EXPECT_EQ(next, 10 * kColumns);
}

TEST(RowShards, ATableThatWasPlacedOtherwiseIsRefused) {
  std::vector<engine::Parameter> other = layout();
  other[1].whole = {11, kColumns};
  EXPECT_THROW(RowShards(other, placed(2, 2)), engine::Error);
  other[1].name = "none";
  EXPECT_THROW(RowShards(other, placed(2, 2)), engine::Error);
}

}  // namespace row_shards_test
}  // namespace lockstep::test
