// SPDX-License-Identifier: MIT
#include "engine/train/top_classes.h"

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

// Returns the rank of the class in descending order: the count of larger numbers, and of equal ones
// before it. Returns `count` if a number is NaN.
template <class T>
std::size_t place_among(const T* numbers, std::size_t count, std::size_t wanted) {
  const double mine = double(numbers[wanted]);
  std::size_t before = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double other = double(numbers[i]);
    if (!(other <= mine) && !(other > mine)) return count;
    before += other > mine || (other == mine && i < wanted);
  }
  return before;
}

template <class T>
std::size_t count(const Tensor& outputs, const Tensor& target, std::size_t rows, std::size_t best) {
  const std::size_t columns = outputs.columns();
  std::size_t right = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const float label = target.as<float>()[row];
    if (!(label >= 0 && double(label) < double(columns))) continue;  // not a class: always wrong
    right += place_among(outputs.as<T>() + row * columns, columns, std::size_t(label)) < best;
  }
  return right;
}

}  // namespace

std::size_t count_in_top(const Tensor& outputs, const Tensor& target, std::size_t rows,
                         std::size_t best) {
  switch (outputs.dtype) {
    case DType::kFloat32:
      return count<float>(outputs, target, rows, best);
    case DType::kFloat64:
      return count<double>(outputs, target, rows, best);
    case DType::kFloat16:
      return count<Half>(outputs, target, rows, best);
    case DType::kBFloat16:
      return count<BFloat16>(outputs, target, rows, best);
    case DType::kInt32:
    case DType::kInt64:
      break;
  }
  broken("outputs of integers");
}

}  // namespace lockstep::engine
