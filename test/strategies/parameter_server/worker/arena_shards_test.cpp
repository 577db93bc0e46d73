// SPDX-License-Identifier: MIT
// Ranges of a graph's arena are mapped to the shards of its variables.
#include "strategies/parameter_server/worker/arena_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/random.h"

namespace lockstep::test {
namespace arena_shards_test {

using namespace strategies;
using engine::Range;
using testing::ElementsAre;
using testing::IsEmpty;

// Returns a layout in which each parameter begins at a multiple of 16 elements, as in a graph.
std::vector<engine::Parameter> layout_of(
    const std::vector<std::pair<std::string, engine::Shape>>& parameters) {
  std::vector<engine::Parameter> layout;
  std::size_t at = 0;
  for (const auto& [name, shape] : parameters) {
    engine::Parameter parameter;
    parameter.name = name;
    parameter.shape = shape;
    parameter.range = {at, at + shape.elements()};
    layout.push_back(parameter);
    at = (parameter.range.end + 15) / 16 * 16;
  }
  return layout;
}

// Returns the variables of a layout in the order of creation, which is not that of the arena.
std::vector<VarInfo> variables_of(const std::vector<engine::Parameter>& layout) {
  std::vector<VarInfo> variables;
  for (auto parameter = layout.rbegin(); parameter != layout.rend(); ++parameter)
    variables.push_back({parameter->name, parameter->shape, parameter->range.size() * 4});
  return variables;
}

ShardPart part(std::size_t server, std::size_t shard, std::size_t begin, std::size_t end,
               std::size_t offset) {
  return {server, shard, begin, end, offset};
}

TEST(ArenaShards, ARangeIsCoveredByPartsInOrderWithoutTheGaps) {
  // The graph creates w first, cut into rows 0-2 and 3-4 of 4 elements. In the arena b is first.
  const auto layout = layout_of({{"b", {10}}, {"w", {5, 4}}});
  PlacementRules rules;
  rules.partitioner_of["w"] = FixedShards{2};
  const auto placement = place_variables(variables_of(layout), 2, rules);
  const ArenaShards shards(layout, placement, 4);
  EXPECT_THAT(shards.parts({0, 36}),
              ElementsAre(part(0, 1, 0, 10, 0), part(0, 0, 0, 12, 16), part(1, 0, 0, 8, 28)));
  EXPECT_THAT(shards.parts({3, 5}), ElementsAre(part(0, 1, 3, 5, 3)));
  EXPECT_THAT(shards.parts({9, 17}), ElementsAre(part(0, 1, 9, 10, 9), part(0, 0, 0, 1, 16)));
  EXPECT_THAT(shards.parts({27, 29}), ElementsAre(part(0, 0, 11, 12, 27), part(1, 0, 0, 1, 28)));
  EXPECT_THAT(shards.parts({10, 16}), IsEmpty());
  EXPECT_THAT(shards.parts({5, 5}), IsEmpty());
  EXPECT_THAT(shards.parts({36, 99}), IsEmpty());
}

TEST(ArenaShards, ChunksAreFilledInTheOrderOfTheArena) {
  const auto layout = layout_of({{"b", {10}}, {"w", {5, 4}}});
  const auto placement = place_variables(variables_of(layout), 1, {});
  const ArenaShards shards(layout, placement, 4);
  const std::vector<ShardChunk> chunks = shards.chunks(0, {0, 36}, 50);  // 12 elements
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_THAT(chunks[0].parts, ElementsAre(part(0, 1, 0, 10, 0), part(0, 0, 0, 2, 16)));
  EXPECT_EQ(chunks[0].span, (Range{0, 18}));
  EXPECT_EQ(chunks[0].elements, 12u);
  EXPECT_THAT(chunks[1].parts, ElementsAre(part(0, 0, 2, 14, 18)));
  EXPECT_THAT(chunks[2].parts, ElementsAre(part(0, 0, 14, 20, 30)));
  EXPECT_EQ(chunks[2].span, (Range{30, 36}));
  EXPECT_EQ(chunks[2].elements, 6u);
  EXPECT_EQ(shards.chunks(0, {0, 36}).size(), 1u);
  EXPECT_EQ(shards.chunks(0, {0, 36}, 1).size(), 30u);  // at least one element
  EXPECT_THAT(shards.chunks(1, {0, 36}), IsEmpty());
}

struct Case {
  std::vector<engine::Parameter> layout;
  VariablePlacement placement;
  std::size_t elements = 0, servers = 0;
};

Case random_case(engine::Random& random) {
  std::vector<std::pair<std::string, engine::Shape>> parameters;
  for (std::size_t p = 0, count = 1 + random.below(8); p < count; ++p) {
    engine::Shape shape;
    for (std::size_t axis = 0, rank = random.below(4); axis < rank; ++axis)
      shape.append(1 + random.below(9));
    parameters.emplace_back(fmt::format("p{}", p), shape);
  }
  Case made;
  made.layout = layout_of(parameters);
  made.elements = (made.layout.back().range.end + 15) / 16 * 16;
  made.servers = 1 + random.below(4);
  PlacementRules rules;
  if (random.below(2) == 0) rules.placer = GreedyBytes{};
  rules.partitioner = FixedShards{1 + random.below(7)};
  made.placement = place_variables(variables_of(made.layout), made.servers, rules);
  return made;
}

// Expects that the part maps its elements of the arena to the right elements of the shard. The
// placement gives the shard's number on its server and the rows before it in its variable.
void expect_right(const Case& made, const ShardPart& part) {
  for (const PlacedShard& shard : made.placement.shards) {
    if (shard.server != part.server || shard.number != part.shard) continue;
    const VarInfo& variable = made.placement.variables[shard.variable];
    const auto parameter = std::ranges::find(made.layout, variable.name, &engine::Parameter::name);
    const std::size_t row = variable.shape.elements() / rows_of(variable.shape);
    EXPECT_EQ(parameter->range.begin + shard.rows.begin * row + part.begin, part.offset);
    EXPECT_LE(part.end, shard.rows.size() * row);
    return;
  }
  ADD_FAILURE() << "server " << part.server << " has no shard " << part.shard;
}

TEST(ArenaShards, EveryElementOfAnyRangeIsInExactlyOnePart) {
  engine::Random random(4);
  for (int round = 0; round < 500; ++round) {
    const Case made = random_case(random);
    const ArenaShards shards(made.layout, made.placement, 4);
    const std::size_t begin = random.below(made.elements + 1);
    const Range range{begin, begin + random.below(made.elements + 1 - begin)};
    std::vector<int> wanted(made.elements), found(made.elements);
    for (const engine::Parameter& parameter : made.layout)
      for (std::size_t i = parameter.range.begin; i < parameter.range.end; ++i)
        wanted[i] = range.begin <= i && i < range.end ? 1 : 0;
    std::size_t at = 0;
    for (const ShardPart& part : shards.parts(range)) {
      EXPECT_GT(part.size(), 0u);
      EXPECT_GE(part.offset, at);
      at = part.offset + part.size();
      expect_right(made, part);
      for (std::size_t i = part.offset; i < at; ++i) ++found[i];
    }
    ASSERT_EQ(found, wanted);
  }
}

TEST(ArenaShards, ChunksCoverAServersPartsOnceInOrderAndNoneIsTooLarge) {
  engine::Random random(5);
  for (int round = 0; round < 500; ++round) {
    const Case made = random_case(random);
    const ArenaShards shards(made.layout, made.placement, 4);
    const std::size_t begin = random.below(made.elements + 1);
    const Range range{begin, begin + random.below(made.elements + 1 - begin)};
    const std::size_t bytes = 1 + random.below(600);
    const std::size_t most = std::max(bytes / 4, std::size_t(1));
    std::vector<int> found(made.elements), wanted(made.elements);
    for (const ShardPart& part : shards.parts(range))
      for (std::size_t i = 0; i < part.size(); ++i) wanted[part.offset + i] = 1;
    for (std::size_t server = 0; server < made.servers; ++server) {
      const std::vector<ShardChunk> chunks = shards.chunks(server, range, bytes);
      std::size_t at = 0;
      for (const ShardChunk& chunk : chunks) {
        std::size_t elements = 0;
        ASSERT_FALSE(chunk.parts.empty());
        EXPECT_EQ(chunk.span.begin, chunk.parts.front().offset);
        for (const ShardPart& part : chunk.parts) {
          EXPECT_EQ(part.server, server);
          EXPECT_GT(part.size(), 0u);
          EXPECT_GE(part.offset, at);
          at = part.offset + part.size();
          elements += part.size();
          expect_right(made, part);
          for (std::size_t i = part.offset; i < at; ++i) ++found[i];
        }
        EXPECT_EQ(chunk.span.end, at);
        EXPECT_EQ(chunk.elements, elements);
        EXPECT_LE(elements, most);
        if (&chunk != &chunks.back()) {
          EXPECT_EQ(elements, most);
        }
      }
    }
    ASSERT_EQ(found, wanted);
  }
}

TEST(ArenaShards, AGraphAndAPlacementThatDoNotFitAreRefusedByName) {
  const auto layout = layout_of({{"b", {10}}, {"w", {5, 4}}});
  const auto error_with = [&](const std::vector<VarInfo>& variables, std::size_t width) {
    try {
      ArenaShards(layout, place_variables(variables, 1, {}), width);
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  auto variables = variables_of(layout);
  variables.push_back({"rows that travel by themselves", {100, 2}, 800});
  EXPECT_EQ(error_with(variables, 4), "no error");
  EXPECT_EQ(error_with(variables, 8),
            "parameter b has shape 10 and 80 bytes, but was placed as 10 with 40");
  variables[0].shape = {4, 5};
  EXPECT_EQ(error_with(variables, 4),
            "parameter w has shape 5x4 and 80 bytes, but was placed as 4x5 with 80");
  variables.erase(variables.begin());
  EXPECT_EQ(error_with(variables, 4), "parameter w has no place on a server");
}

}  // namespace arena_shards_test
}  // namespace lockstep::test
