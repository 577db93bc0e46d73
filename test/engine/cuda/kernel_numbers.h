// SPDX-License-Identifier: MIT
// Operands of kernels that run in the emulator: numbers of an element type made of float64 and
// back, and how far a result of such a type may be from one of float64.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/base/half.h"

namespace lockstep::engine::cuda {

template <class T>
std::vector<T> narrowed_to(const std::vector<double>& numbers) {
  std::vector<T> result;
  for (const double number : numbers) result.push_back(T(float(number)));
  return result;
}

template <class T>
std::vector<double> as_doubles(const std::vector<T>& numbers) {
  std::vector<double> result;
  for (const T number : numbers) result.push_back(double(float(number)));
  return result;
}

// What T has of each number.
template <class T>
std::vector<double> held_by(const std::vector<double>& numbers) {
  return as_doubles(narrowed_to<T>(numbers));
}

// A rounding to the type, and what sums of float32 lose.
template <class T>
constexpr double kTolerance = 1e-5;
template <>
inline constexpr double kTolerance<BFloat16> = 0x1p-8;
template <>
inline constexpr double kTolerance<Half> = 0x1p-10;

// Each of the first `count` numbers is near what is expected, as seen from 1 or from its own size.
template <class T>
void expect_near(const std::vector<T>& results, const std::vector<double>& expected,
                 std::size_t count, const char* what) {
  for (std::size_t i = 0; i < count; ++i) {
    const double size = std::max(1.0, std::abs(expected[i]));
    ASSERT_NEAR(double(float(results[i])), expected[i], kTolerance<T> * size) << what << " " << i;
  }
}

}  // namespace lockstep::engine::cuda
