// SPDX-License-Identifier: MIT
// The small parts of a server's shards.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "strategies/parameter_server/rpc/array_reader.h"
#include "strategies/parameter_server/rpc/sequence_table.h"
#include "strategies/parameter_server/server/chunked_array.h"
#include "strategies/parameter_server/server/range_values.h"
#include "test/strategies/parameter_server/server/small_server.h"

namespace lockstep::test {
namespace shard_parts_test {

using namespace strategies;
using engine::Range;

TEST(RangeValues, AreThoseOfAPlainArrayInAsFewRunsAsThereCanBe) {
  std::mt19937_64 random(1);
  RangeValues values(50, 3);
  std::vector<std::int64_t> plain(50, 3);
  for (int round = 0; round < 2000; ++round) {
    std::size_t a = random() % 51, b = random() % 51;
    if (a > b) std::swap(a, b);
    const auto value = std::int64_t(random() % 3);
    const bool add = random() % 2 == 0;
    add ? values.add({a, b}, value - 1) : values.set({a, b}, value);
    for (std::size_t i = a; i < b; ++i) plain[i] = add ? plain[i] + value - 1 : value;
    std::vector<RangeValues::Run> runs;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      if (i > 0 && plain[i] == plain[i - 1]) {
        ++runs.back().range.end;
      } else {
        runs.push_back({{i, i + 1}, plain[i]});
      }
    }
    ASSERT_EQ(values.runs(), runs) << "round " << round;
    EXPECT_EQ(values.all(plain[0]), runs.size() == 1);
  }
  RangeValues two(10);
  two.set({4, 7}, 1);
  const std::vector<RangeValues::Run> cut{{{3, 4}, 0}, {{4, 6}, 1}};
  EXPECT_EQ(two.runs({3, 6}), cut);
  EXPECT_TRUE(RangeValues(0).all(7));
}

TEST(SequenceTable, KnowsEveryNumberOnceInWhateverOrder) {
  std::mt19937_64 random(2);
  SequenceTable table;
  std::set<std::uint64_t> plain;
  for (int round = 0; round < 3000; ++round) {
    const std::uint64_t number = 1 + random() % 400;
    ASSERT_EQ(table.had(number), plain.count(number) > 0);
    if (plain.insert(number).second) table.add(number);
    ASSERT_EQ(table.last(), *plain.rbegin());
    ASSERT_EQ(table.lost(), *plain.rbegin() - plain.size());
    const SequenceTable again(table.ranges());
    ASSERT_EQ(again.lost(), table.lost());
    ASSERT_EQ(again.ranges(), table.ranges());
  }
}

TEST(SequenceTable, NothingIsLostBetweenTwoLives) {
  constexpr std::uint64_t kSecond = std::uint64_t(1) << SequenceTable::kLifeBit;
  SequenceTable table;
  for (const std::uint64_t number : {1, 2, 4}) table.add(number);
  table.add(kSecond + 1);
  EXPECT_EQ(table.lost(), 1u);
  table.add(kSecond + 4);
  table.add(3 * kSecond + 2);
  EXPECT_EQ(table.lost(), 4u) << "one of the first, two of the second, one of the fourth";
  EXPECT_EQ(SequenceTable(table.ranges()).lost(), 4u);
  SequenceTable later;
  later.add(kSecond + 1);
  EXPECT_EQ(later.lost(), 0u);
}

TEST(SequenceTable, GivesUpTheOldestGapsAndNeverAppliesThem) {
  SequenceTable table;
  const std::uint64_t pushes = 3 * SequenceTable::kMostGaps;
  for (std::uint64_t i = 1; i <= pushes; ++i) table.add(2 * i);
  EXPECT_LE(table.ranges().size(), SequenceTable::kMostGaps);
  EXPECT_EQ(table.lost(), pushes);
  EXPECT_TRUE(table.had(3)) << "an open gap takes memory";
  EXPECT_FALSE(table.had(2 * pushes - 1));
}

TEST(SequenceTable, RefusesRangesThatAreNone) {
  const std::vector<SequenceTable::Ranges> none{
      {{0, 3}}, {{3, 3}}, {{1, 3}, {3, 4}}, {{5, 6}, {1, 2}}};
  for (const SequenceTable::Ranges& ranges : none) {
    EXPECT_NE(refused([&] { SequenceTable table(ranges); }, engine::Code::kCorrupt), "");
  }
}

// Lent chunks keep their values, and returned chunks are written in place.
TEST(ChunkedArray, LendsWithoutACopyAndWritesBesideIt) {
  const std::size_t elements = ChunkedArray::kChunk * 2 + 100;
  ChunkedArray array(elements, sizeof(float));
  const auto write = [&](Range range, float value) {
    const Range ranges[] = {range};
    array.reserve(ranges);
    array.write(range, [&](Range part, const std::byte*, std::byte* now) {
      for (std::size_t i = 0; i < part.size(); ++i) reinterpret_cast<float*>(now)[i] = value;
    });
  };
  const auto values = [&](Range range) {
    std::vector<float> copy(range.size());
    array.copy(range, reinterpret_cast<std::byte*>(copy.data()));
    return copy;
  };
  write({0, elements}, 1);
  std::vector<rpc::Slice> loan, same;
  array.lend({0, elements}, loan);
  array.lend({0, elements}, same);
  ASSERT_EQ(loan.size(), 3u);
  EXPECT_EQ(loan[1].data, same[1].data) << "a loan is no copy";
  same.clear();
  const Range across{ChunkedArray::kChunk - 5, ChunkedArray::kChunk + 7};
  write(across, 2);
  const std::vector<float> lent = floats_of(loan);
  EXPECT_EQ(std::count(lent.begin(), lent.end(), 1.0f), std::ptrdiff_t(elements));
  const std::vector<float> now = values({0, elements});
  for (std::size_t i = 0; i < elements; ++i)
    ASSERT_EQ(now[i], i >= across.begin && i < across.end ? 2.0f : 1.0f) << i;
  array.lend({0, 1}, same);
  EXPECT_NE(same[0].data, loan[0].data);
  const std::byte* place = same[0].data;
  same.clear();
  loan.clear();
  write({0, 10}, 3);
  array.lend({0, 1}, same);
  EXPECT_EQ(same[0].data, place) << "nobody had it on loan: it is written in place";
}

// The memory of the short last chunk, once lent, is not reused for a full chunk.
TEST(ChunkedArray, NoShortChunkTakesTheirPlace) {
  const std::size_t whole = ChunkedArray::kChunk;
  ChunkedArray array(whole + 1, sizeof(float));
  const auto put_while_lent = [&](Range range, float value) {
    std::vector<rpc::Slice> loan;
    array.lend(range, loan);
    array.write(range, [&](Range part, const std::byte*, std::byte* now) {
      for (std::size_t i = 0; i < part.size(); ++i) reinterpret_cast<float*>(now)[i] = value;
    });
  };
  put_while_lent({whole, whole + 1}, 1);
  for (int round = 2; round < 6; ++round) {
    put_while_lent({0, whole}, float(round));
    std::vector<float> all(whole + 1);
    array.copy({0, whole + 1}, reinterpret_cast<std::byte*>(all.data()));
    EXPECT_EQ(std::count(all.begin(), all.end(), float(round)), std::ptrdiff_t(whole));
    EXPECT_EQ(all[whole], 1);
  }
}

TEST(ChunkedArray, UsesTheSameMemoryAgain) {
  ChunkedArray array(100, sizeof(float));
  std::set<const std::byte*> places;
  for (int round = 0; round < 10; ++round) {
    std::vector<rpc::Slice> loan;
    array.lend({0, 100}, loan);
    places.insert(loan[0].data);
    array.write({0, 100}, [](Range, const std::byte*, std::byte*) {});
  }
  EXPECT_EQ(places.size(), 2u);
}

TEST(ArrayReader, GivesTheSameElementsHoweverTheBodyIsCut) {
  std::vector<float> values(40'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(i) * 0.5f;
  for (const std::size_t bytes : {0, 3, 1000, 70'001}) {
    for (const std::size_t offset : {0, 1}) {
      const auto body = slices_of(values, bytes, offset);
      ArrayReader reader(body, false);
      std::vector<float> read;
      for (const std::size_t count : {1, 7, 16384, 100}) {
        const std::byte* next = reader.next(count, engine::DType::kFloat32);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(next) % sizeof(float), 0u);
        read.insert(read.end(), reinterpret_cast<const float*>(next),
                    reinterpret_cast<const float*>(next) + count);
      }
      reader.skip(5 * sizeof(float));
      const auto kept = reader.keep(values.size() - read.size() - 5, engine::DType::kFloat32);
      const auto* rest = reinterpret_cast<const float*>(kept.get());
      for (std::size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], values[i]);
      for (std::size_t i = read.size() + 5; i < values.size(); ++i)
        ASSERT_EQ(rest[i - read.size() - 5], values[i]);
    }
  }
}

TEST(ArrayReader, KeepsAlignedSlicesWithoutACopy) {
  const std::vector<float> values(100, 1.0f);
  const auto body = slices_of(values);
  ArrayReader reader(body, false);
  reader.next(10, engine::DType::kFloat32);
  EXPECT_EQ(reader.keep(90, engine::DType::kFloat32).get(), body[0].data + 40);
}

// Rounding goes to the nearest value, and ties go to even: 1 + 2^-8 is a tie and rounds down to 1,
// 1 + 3 2^-8 rounds up to 1 + 2^-6.
TEST(ArrayReader, RoundsToBfloat16AndWidensIt) {
  const std::vector<float> values{1.0f, 1.00390625f, 1.01171875f, 1.0040f, -2.5f};
  const std::vector<float> rounded{1.0f, 1.0f, 1.015625f, 1.0078125f, -2.5f};
  const auto wire = narrowed(slices_of(values, 8), engine::DType::kFloat32);
  ASSERT_EQ(wire.size(), 1u);
  EXPECT_EQ(wire[0].size, values.size() * 2);
  ArrayReader reader(wire, true);
  const auto* read =
      reinterpret_cast<const float*>(reader.next(values.size(), engine::DType::kFloat32));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(read[i], rounded[i]);
  ArrayReader wide(wire, true);
  const auto kept = wide.keep(values.size(), engine::DType::kFloat64);
  EXPECT_EQ(reinterpret_cast<const double*>(kept.get())[2], 1.015625);
}

}  // namespace shard_parts_test
}  // namespace lockstep::test
