// SPDX-License-Identifier: MIT
// Tests graphs that hold only those rows of a table that a batch touches. They compute the same
// bits as with the whole table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/error.h"
#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "test/engine/nn/id_graphs.h"

namespace lockstep::engine {
namespace compact_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

constexpr GraphOptions kCompact{.compact_rows = true};

const Parameter& named(const Graph& graph, const std::string& name) {
  for (const Parameter& parameter : graph.layout()) {
    if (parameter.name == name) return parameter;
  }
  ADD_FAILURE() << "no parameter " << name;
  return graph.layout()[0];
}

// Returns row `row` of a parameter in an arena of the graph.
std::byte* row_of(const Graph& graph, std::byte* arena, const Parameter& p, std::size_t row) {
  return arena + (p.range.begin + row * p.shape[1]) * size_of(graph.dtype());
}

// Copies the values of all parameters, as a strategy does; for compact ones, only the touched rows.
void pull(const Solo& from, Solo& to) {
  for (const Parameter& p : to.graph.layout()) {
    const Parameter& whole = named(from.graph, p.name);
    std::byte* const source = const_cast<std::byte*>(from.weights.data());
    const std::size_t size = size_of(to.graph.dtype());
    if (!p.compact) {
      std::memcpy(to.weights.data() + p.range.begin * size, source + whole.range.begin * size,
                  p.range.size() * size);
      continue;
    }
    const auto touched = to.graph.touched(p);
    for (std::size_t k = 0; k < touched.size(); ++k) {
      std::memcpy(row_of(to.graph, to.weights.data(), p, k),
                  row_of(from.graph, source, whole, touched[k]), p.shape[1] * size);
    }
  }
}

void expect_equal_bits(const std::byte* a, const std::byte* b, std::size_t bytes,
                       const std::string& what) {
  EXPECT_EQ(std::memcmp(a, b, bytes), 0) << what;
}

void expect_equal_gradients(Solo& whole, Solo& compact) {
  const std::size_t size = size_of(whole.graph.dtype());
  for (const Parameter& p : compact.graph.layout()) {
    if (p.frozen) continue;
    const Parameter& w = named(whole.graph, p.name);
    std::byte* const expected = whole.gradients.data() + w.range.begin * size;
    std::byte* const found = compact.gradients.data() + p.range.begin * size;
    if (!p.compact) {
      expect_equal_bits(found, expected, p.range.size() * size, p.name);
      continue;
    }
    const std::size_t bytes = p.shape[1] * size;
    const std::vector<std::byte> zeros(bytes);
    const auto touched = compact.graph.touched(p);
    for (std::size_t k = 0; k < p.shape[0]; ++k) {
      const bool used = k < touched.size();
      expect_equal_bits(found + k * bytes, used ? expected + touched[k] * bytes : zeros.data(),
                        bytes, fmt::format("{}, row {} of the compact ones", p.name, k));
    }
    for (std::size_t row = 0; row < w.shape[0]; ++row) {
      if (std::ranges::binary_search(touched, row)) continue;
      expect_equal_bits(expected + row * bytes, zeros.data(), bytes,
                        fmt::format("{}, untouched row {}", p.name, row));
    }
  }
}

TEST(CompactRows, GiveTheBitsOfTheWholeTable) {
  for (const auto& device : host_devices()) {
    for (const char* frozen : {"", "rows", "votes.weight"}) {
      for (bool sum : {false, true}) {
        const auto ops = device->ops(device->default_dtype(), {});
        GraphSpec spec = id_graph(sum);
        if (*frozen != 0) spec.freeze(frozen);
        IdSolo whole(spec, *ops, 7), compact(spec, *ops, 7, 1, kCompact);
        std::size_t first = 0;
        for (std::size_t examples : {7u, 1u, 0u, 3u, 7u}) {  // other rows each time
          SCOPED_TRACE(fmt::format("{} examples, frozen '{}'", examples, frozen));
          whole.fill_ids(first, examples);
          compact.fill_ids(first, examples);
          first += examples;
          compact.graph.find_touched(compact.state);
          pull(whole, compact);
          whole.step();
          compact.step();
          expect_equal_bits(compact.graph.losses().data, whole.graph.losses().data,
                            examples * sizeof(double), "losses");
          expect_equal_gradients(whole, compact);
        }
      }
    }
  }
}

TEST(CompactRows, TouchedAreTheRowsOfTheBatchAscendingEachOnce) {
  const auto ops = reference_ops(DType::kFloat64);
  IdSolo solo(id_graph(true), *ops, 4, 1, kCompact);
  const auto touch = [&](const std::vector<double>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      solo.graph.input().as<double>()[i / 3 * 5 + 2 + i % 3] = ids[i];
    }
    solo.state.examples = std::int64_t(ids.size() / 3);
    solo.graph.find_touched(solo.state);
    const auto rows = solo.graph.touched(named(solo.graph, "rows.weight"));
    const auto votes = solo.graph.touched(named(solo.graph, "votes.weight"));
    EXPECT_EQ(rows.data(), votes.data()) << "layers that read the same ids share the list";
    EXPECT_EQ(rows.size(), votes.size());
    return std::vector<std::uint64_t>(rows.begin(), rows.end());
  };
  EXPECT_THAT(touch({3, 0, 1, /**/ 0, 0, 2, /**/ 3, 1, 1, /**/ 3, 0, 3}),
              ElementsAre(0, 3, 4, 5, 9, 10, 11));
  EXPECT_THAT(touch({2, 2, 2, /**/ 2, 2, 2}), ElementsAre(2, 6, 10));
  EXPECT_THAT(touch({}), IsEmpty());
  EXPECT_THAT(touch({0, 3, 0}), ElementsAre(0, 7, 8));
  EXPECT_THAT(solo.graph.touched(named(solo.graph, "deep.weight")), IsEmpty());
}

TEST(CompactRows, StartValuesOfARowAreThoseOfTheWholeTable) {
  const auto ops = reference_ops(DType::kFloat64);
  const IdSolo whole(id_graph(true), *ops, 2, 5), compact(id_graph(true), *ops, 2, 5, kCompact);
  for (const Parameter& p : compact.graph.layout()) {
    const double* const all = reinterpret_cast<const double*>(whole.weights.data()) +
                              named(whole.graph, p.name).range.begin;
    const double* const mine =
        reinterpret_cast<const double*>(compact.weights.data()) + p.range.begin;
    for (std::size_t i = 0; i < p.range.size(); ++i) {
      EXPECT_EQ(mine[i], p.compact ? 0 : all[i]) << p.name;
    }
    if (!p.compact) continue;
    const std::size_t columns = p.whole[1];
    for (std::size_t row = 0; row < p.whole[0]; ++row) {
      std::vector<double> alone(columns);
      initialise(p.initial, 5, p.name,
                 {reinterpret_cast<std::byte*>(alone.data()), {columns}, DType::kFloat64},
                 row * columns);
      EXPECT_EQ(alone, std::vector<double>(all + row * columns, all + (row + 1) * columns));
    }
  }
}

TEST(CompactRows, TakeTheRoomOfABatchAndAreAnnouncedAsOthers) {
  const auto ops = reference_ops(DType::kFloat64);
  GraphSpec spec("large", {3});
  spec.then("words", embedding(1'000'000, 4));
  spec.then("last", dense(2));
  spec.set_loss(mean_squared_error());
  Solo solo(spec, *ops, 5, 1, kCompact);
  const Parameter& words = named(solo.graph, "words.weight");
  EXPECT_TRUE(words.sparse);
  EXPECT_TRUE(words.compact);
  EXPECT_EQ(words.shape, (Shape{15, 4}));
  EXPECT_EQ(words.whole, (Shape{3'000'000, 4}));
  EXPECT_EQ(named(solo.graph, "last.weight").whole, (Shape{2, 12}));
  EXPECT_LT(solo.graph.parameters(), 200u);
  EXPECT_THAT(Graph::memory(spec, *ops, 5, kCompact).largest,
              testing::Not(HasSubstr("words.weight")));
  EXPECT_THAT(Graph::memory(spec, *ops, 5).largest, HasSubstr("words.weight, 3000000x4"));
  // A compact parameter has no more rows than the table.
  const Graph small(id_graph(true), *ops, 50, kCompact);
  EXPECT_EQ(named(small, "rows.weight").shape, (Shape{12, 2}));

  std::fill_n(solo.graph.input().as<double>(), 15, 999'999);
  solo.graph.find_touched(solo.state);
  std::size_t begin = solo.graph.trainable(), end = 0;
  solo.step(
      false, [&](Range range) { EXPECT_EQ(std::exchange(begin, range.begin), range.end); },
      [&](Range range) { EXPECT_EQ(std::exchange(end, range.end), range.begin); });
  EXPECT_EQ(begin, 0u);
  EXPECT_EQ(end, solo.graph.trainable());
}

TEST(CompactRows, WhatTheyCannotDoIsRefused) {
  const auto ops = reference_ops(DType::kFloat64);
  IdSolo solo(id_graph(true), *ops, 4, 1, kCompact);
  solo.fill_ids(0, 4);
  solo.graph.find_touched(solo.state);
  solo.graph.forward(solo.context, {});
  solo.graph.evaluate_loss(solo.context, true);
  EXPECT_THAT([&] { solo.graph.backward(solo.context, true, {}); },
              ThrowsMessage<Error>(HasSubstr("leave micro-batches out")));

  solo.graph.input().as<double>()[2] = 4;
  EXPECT_THAT([&] { solo.graph.find_touched(solo.state); },
              ThrowsMessage<Error>(HasSubstr("layer rows: example 1000: field 0 (column 2 of its "
                                             "input) is 4, which is no id")));

  GraphSpec spec("deeper", {3});
  spec.then("tanh", tanh());
  spec.then("words", embedding(5, 4));
  spec.set_loss(mean_squared_error());
  EXPECT_THAT([&] { const Graph graph(spec, *ops, 2, kCompact); },
              ThrowsMessage<Error>(HasSubstr("layer words: its rows can be compact only where the "
                                             "ids lie in the model's input")));
  const Graph fine(spec, *ops, 2);
}

// A graph without tables does not depend on the option.
TEST(CompactRows, ChangeNothingOfOtherGraphs) {
  const auto ops = reference_ops(DType::kFloat64);
  GraphSpec spec("plain", {3});
  spec.then("last", dense(2));
  spec.set_loss(mean_squared_error());
  Solo plain(spec, *ops, 3), compact(spec, *ops, 3, 1, kCompact);
  plain.step();
  plain.step(true);
  compact.step();
  compact.step(true);
  EXPECT_EQ(plain.gradient(), compact.gradient());
}

}  // namespace compact_test
}  // namespace lockstep::engine
