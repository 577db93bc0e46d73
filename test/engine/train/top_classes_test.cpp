// SPDX-License-Identifier: MIT
// Tests that the top-k count agrees with a plain sort.
#include "engine/train/top_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/random.h"

namespace lockstep::engine {
namespace top_classes_test {

// Returns the indices by descending value; among equal values the first comes first.
template <class T>
std::vector<std::size_t> order_of(const T* row, std::size_t columns) {
  std::vector<std::size_t> order(columns);
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return double(row[a]) > double(row[b]); });
  return order;
}

// Tests rows of `different` distinct values: with few of them, many elements are equal.
template <class T>
void expect_sorted(std::size_t columns, std::uint64_t different) {
  constexpr std::size_t kRows = 200;
  Random random(columns * 100 + different);
  std::vector<T> outputs;
  std::vector<float> labels;
  for (std::size_t i = 0; i < kRows * columns; ++i)
    outputs.push_back(T(float(random.below(different)) - 2));
  for (std::size_t row = 0; row < kRows; ++row) labels.push_back(float(random.below(columns)));
  const Tensor y{reinterpret_cast<std::byte*>(outputs.data()), {kRows, columns}, dtype_of<T>()};
  const Tensor target{reinterpret_cast<std::byte*>(labels.data()), {kRows, 1}, DType::kFloat32};
  for (const std::size_t best : {std::size_t(1), std::size_t(5), columns}) {
    std::size_t right = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto order = order_of(outputs.data() + row * columns, columns);
      const auto end = order.begin() + std::ptrdiff_t(std::min(best, columns));
      right += std::find(order.begin(), end, std::size_t(labels[row])) != end;
    }
    EXPECT_EQ(count_in_top(y, target, kRows, best), right)
        << columns << " columns, " << different << " numbers, the best " << best;
    if (best == columns) {
      EXPECT_EQ(right, kRows);
    }
  }
}

TEST(TopClasses, AreThoseOfAPlainSortOfAllTypesAndOfEqualsTheFirst) {
  for (const std::size_t columns : {std::size_t(2), std::size_t(6), std::size_t(100)})
    for (const std::uint64_t different : {1, 3, 1000}) {
      expect_sorted<float>(columns, different);
      expect_sorted<double>(columns, different);
      expect_sorted<Half>(columns, different);
      expect_sorted<BFloat16>(columns, different);
    }
}

TEST(TopClasses, OfARowWithANumberThatIsNoneOrALabelThatIsNoClassAreNone) {
  std::vector<double> outputs{5, 4, 3, 5, 4, NAN, 5, 4, 3};
  std::vector<float> labels{0, 0, 3};
  const Tensor y{reinterpret_cast<std::byte*>(outputs.data()), {3, 3}, DType::kFloat64};
  const Tensor target{reinterpret_cast<std::byte*>(labels.data()), {3, 1}, DType::kFloat32};
  EXPECT_EQ(count_in_top(y, target, 1, 3), 1u);
  EXPECT_EQ(count_in_top(y, target, 2, 3), 1u);
  EXPECT_EQ(count_in_top(y, target, 3, 3), 1u);
}

}  // namespace top_classes_test
}  // namespace lockstep::engine
