// SPDX-License-Identifier: MIT
// A graph whose input holds numbers and ids, and batches for it.
#pragma once
#include <algorithm>
#include <vector>

#include "engine/base/random.h"
#include "engine/nn/layers.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {

// Returns a graph of two numbers, followed by ids of three fields with four rows each. Two layers
// read the ids.
inline GraphSpec id_graph(bool sum) {
  GraphSpec spec("ids", {5});
  const auto numbers = spec.add("numbers", columns(0, 2), spec.input());
  const auto rows = spec.add("rows", embedding(4, 2, {.first = 2, .fields = 3}), spec.input());
  const auto votes = spec.add(
      "votes", embedding(4, sum ? 3 : 1, {.first = 2, .sum = sum, .limit = 0}), spec.input());
  const auto all = spec.add("all", concatenate(), {numbers, rows});
  const auto deep = spec.add("deep", dense(6), all);
  const auto bent = spec.add("bent", tanh(), deep);
  const auto logits = spec.add("logits", dense(3), bent);
  spec.add("both", add(), {logits, votes});
  spec.set_loss(softmax_cross_entropy());
  return spec;
}

// Returns an id if `column` is at least `first`, otherwise a number in (-1, 1). The ids are skewed:
// some are rare.
inline float id_input(std::size_t row, std::size_t column, std::size_t first = 2,
                      std::size_t rows = 4) {
  Random random(9, row * 64 + column);
  if (column < first) return float(random.uniform(-1, 1));
  return float(std::min(random.below(rows), random.below(rows)));
}

struct IdSolo : Solo {
  using Solo::Solo;
  // Fills in examples [first, first + count), as `fill` does. An input of five columns begins with
  // two numbers; others hold only ids.
  void fill_ids(std::size_t first, std::size_t count) {
    fill(first, count, count, graph.correct() ? graph.output().columns() : 0);
    const Tensor input = graph.input();
    const std::size_t columns = input.columns(), before = columns == 5 ? 2 : 0;
    std::vector<float> numbers(input.elements());
    for (std::size_t i = 0; i < count * columns; ++i) {
      numbers[i] = id_input(first + i / columns, i % columns, before);
    }
    context.ops->load(numbers.data(), input);
  }
};

}  // namespace lockstep::engine
