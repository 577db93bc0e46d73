// SPDX-License-Identifier: MIT
// Operands of kernels in the emulator: conversion between float64 and an element type, and the
// tolerance of results of such a type.
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

// Returns each number as stored in T.
template <class T>
std::vector<double> held_by(const std::vector<double>& numbers) {
  return as_doubles(narrowed_to<T>(numbers));
}

// The tolerance covers one rounding to the type and the errors of float32 sums.
template <class T>
constexpr double kTolerance = 1e-5;
template <>
inline constexpr double kTolerance<BFloat16> = 0x1p-8;
template <>
inline constexpr double kTolerance<Half> = 0x1p-10;

// Expects each of the first `count` results near its value, relative to the value or to 1.
template <class T>
void expect_near(const std::vector<T>& results, const std::vector<double>& expected,
                 std::size_t count, const char* what) {
  for (std::size_t i = 0; i < count; ++i) {
    const double size = std::max(1.0, std::abs(expected[i]));
    ASSERT_NEAR(double(float(results[i])), expected[i], kTolerance<T> * size) << what << " " << i;
  }
}

}  // namespace lockstep::engine::cuda
