// SPDX-License-Identifier: MIT
// Tests that embedding kernels on every device agree with the float64 reference, and that invalid
// ids are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "test/engine/ops/conformance.h"

namespace lockstep::engine {
namespace embedding_test {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns places for `rows`. Those of unused rows lie far outside of the table: nothing may read
// them.
std::vector<std::uint32_t> some_places(Rows rows, std::size_t fields, std::size_t table) {
  std::vector<std::uint32_t> places(rows.planned * fields, 0xffffffff);
  Random random(5);
  for (std::size_t i = 0; i < rows.used * fields; ++i) {
    places[i] = std::uint32_t(random.below(table));
  }
  return places;
}

Results embedding_case(Machine& m, const EmbeddingSpec& spec, Rows rows, std::size_t table,
                       bool accumulate) {
  const StepState* const state = m.publish(state_of(rows.used));
  const auto places = m.numbers(some_places(rows, spec.fields, table));
  const Operand w = m.operand({table, spec.columns}, random_numbers(table * spec.columns, 1));
  const Operand y = m.empty({rows.planned, spec.outputs()});
  m.ops().embedding_forward(state, spec, places.data(), w.tensor, y.tensor);
  const Operand dy = m.operand({rows.planned, spec.outputs()},
                               random_batch(rows.planned, rows.used, spec.outputs(), 2));
  const Operand dw = m.operand({table, spec.columns}, random_numbers(table * spec.columns, 3));
  m.ops().embedding_backward(state, spec, places.data(), dy.tensor, {}, accumulate);  // frozen
  m.ops().embedding_backward(state, spec, places.data(), dy.tensor, dw.tensor, accumulate);
  return {y.values(rows.used), dw.values()};
}

TEST_F(Conformance, Embeddings) {
  for (std::size_t fields : {1u, 3u, 26u}) {
    for (std::size_t columns : {1u, 2u, 8u, 19u}) {
      for (Rows rows : {Rows{1, 1}, Rows{5, 3}, Rows{4, 0}, Rows{40, 40}}) {
        for (int variant = 0; variant < 4; ++variant) {
          const EmbeddingSpec spec{fields, columns, variant % 2 == 1};
          // With few rows, most of them are read several times.
          const std::size_t table = columns == 2 ? 1 : 23;
          compare(fmt::format("{} fields of {} columns, {} of {} rows, variant {}", fields, columns,
                              rows.used, rows.planned, variant),
                  [&](Machine& m) { return embedding_case(m, spec, rows, table, variant >= 2); });
          if (enough_failed()) return;
        }
      }
    }
  }
}

TEST_F(Conformance, ColumnsGoWhereTheyAreSent) {
  for (Rows rows : {Rows{1, 1}, Rows{4, 3}, Rows{3, 0}}) {
    compare(fmt::format("{} of {} rows", rows.used, rows.planned), [&](Machine& m) {
      const StepState* const state = m.publish(state_of(rows.used));
      const Operand x = m.operand({rows.planned, 5}, random_batch(rows.planned, rows.used, 5, 1));
      const Operand y = m.operand({rows.planned, 4}, random_batch(rows.planned, rows.used, 4, 2));
      m.ops().copy_columns(state, x.tensor, 2, y.tensor, 1, 3);
      Results results{y.values(rows.used)};
      m.ops().clear(state, x.tensor);
      results.push_back(x.values(rows.used));
      return results;
    });
  }
  const StepState* const state = oracle_.publish(state_of(2));
  const Operand x = oracle_.operand({2, 3}, {1, 2, 3, 4, 5, 6});
  const Operand y = oracle_.operand({2, 4}, {0, 0, 0, 0, 0, 0, 0, 0});
  oracle_.ops().copy_columns(state, x.tensor, 1, y.tensor, 2, 2);
  EXPECT_THAT(y.values(), ElementsAre(0, 0, 2, 3, 0, 0, 5, 6));
}

TEST_F(Conformance, IdsPickRowsOfTheirField) {
  for (Machine& m : machines_) {
    SCOPED_TRACE(m.name());
    const StepState* const state = m.publish(state_of(2));
    const Operand x = m.operand({3, 4}, {0.5, 0, 9, -1, 0.5, 7, 4, -1, 99, 99, 99, 99});
    const auto places = m.numbers(std::vector<std::uint32_t>(6, 77));
    m.ops().embedding_rows(state, {1, 2, 10}, x.tensor, "words", places.data());
    EXPECT_THAT(places.values(), ElementsAre(0, 19, 7, 14, 77, 77));
  }
  // This is the largest id that float32 can count to.
  std::uint32_t place = 0;
  const StepState* const state = oracle_.publish(state_of(1));
  const Operand x = oracle_.operand({1, 1}, {16777215});
  oracle_.ops().embedding_rows(state, {0, 1, RowSource::kMostRows}, x.tensor, "words", &place);
  EXPECT_EQ(place, 16777215u);
}

TEST_F(Conformance, WhatIsNoIdIsRefusedByLayerExampleAndNumber) {
  const std::vector<std::int64_t> ids{400, 401};
  for (Machine& m : machines_) {
    for (double wrong : {-1.0, 3.0, 1.5, 1e30, std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::infinity()}) {
      SCOPED_TRACE(fmt::format("{}: {}", m.name(), wrong));
      StepState words = state_of(2);
      words.ids = ids.data();
      const StepState* const state = m.publish(words);
      const Operand x = m.operand({2, 3}, {0, 1, 2, 0, 1, wrong});
      const auto places = m.numbers(std::vector<std::uint32_t>(4));
      try {
        m.ops().embedding_rows(state, {1, 2, 3}, x.tensor, "words", places.data());
        m.ops().synchronize();
        ADD_FAILURE() << "it was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kInvalid);
        EXPECT_THAT(error.what(), HasSubstr("layer words: example 401: field 1 (column 2 of "));
        EXPECT_THAT(error.what(),
                    HasSubstr(fmt::format("is {}, which is no id", float(m.held(wrong)))));
        EXPECT_THAT(error.what(), HasSubstr("whole numbers from 0 to 2"));
      }
    }
  }
}

TEST_F(Conformance, IdsThatTheInputCannotTellApartAreRefused) {
  for (Machine& m : machines_) {
    if (m.dtype() != DType::kBFloat16) continue;
    SCOPED_TRACE(m.name());
    const StepState* const state = m.publish(state_of(1));
    const Operand x = m.operand({1, 1}, {255});
    const auto place = m.numbers(std::vector<std::uint32_t>{0});
    m.ops().embedding_rows(state, {0, 1, 256}, x.tensor, "words", place.data());
    EXPECT_THAT(place.values(), ElementsAre(255u));
    try {
      m.ops().embedding_rows(state, {0, 1, 257}, x.tensor, "words", place.data());
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr("layer words: ids of 257 rows"));
    }
  }
}

}  // namespace embedding_test
}  // namespace lockstep::engine
