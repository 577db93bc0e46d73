// SPDX-License-Identifier: MIT
#include "tools/bench/values.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/base/error.h"

namespace lockstep::tools::bench {
namespace {

using engine::DType;
using engine::ReduceOp;

constexpr std::size_t kPeriod = 61;           // period of the numbers: a prime
constexpr std::size_t kChunk = kPeriod * 32;  // elements compared at once; fits a cache
// Number of ranks with factors other than 1 and -1: 2^14 is representable in float16.
constexpr int kFactors = 14;

template <class T>
void store(double number, std::byte* to) {
  const T value = T(std::conditional_t<sizeof(T) == 2, float, double>(number));
  std::memcpy(to, &value, sizeof value);
}

void store(DType dtype, double number, std::byte* to) {
  switch (dtype) {
    case DType::kFloat32:
      return store<float>(number, to);
    case DType::kFloat64:
      return store<double>(number, to);
    case DType::kInt32:
      return store<std::int32_t>(number, to);
    case DType::kInt64:
      return store<std::int64_t>(number, to);
    case DType::kFloat16:
      return store<engine::Half>(number, to);
    case DType::kBFloat16:
      return store<engine::BFloat16>(number, to);
  }
}

// Returns the number up to which all whole numbers are exact.
double most_exact(DType dtype) {
  return dtype == DType::kFloat16 ? 2048 : dtype == DType::kBFloat16 ? 256 : 0x1p24;
}

double combined(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
  }
  engine::broken("an operation without a result");
}

}  // namespace

Values::Values(DType dtype, ReduceOp op, bool mean, int ranks)
    : dtype_(dtype),
      op_(op),
      mean_(mean),
      ranks_(ranks),
      different_(op == ReduceOp::kSum
                     ? std::clamp<std::size_t>(std::size_t(most_exact(dtype)) / std::size_t(ranks),
                                               1, kPeriod)
                     : kPeriod),
      table_((kChunk + kPeriod) * engine::size_of(dtype)) {}

double Values::input(std::size_t place, int rank, int round) const {
  const std::size_t number = (place + std::size_t(rank) * 5 + std::size_t(round) * 3) % kPeriod;
  if (op_ == ReduceOp::kProduct)
    return (number % 2 == 0 ? 1 : -1) * (number % 3 == 0 && rank < kFactors ? 2.0 : 1.0);
  return double(1 + number % different_);
}

double Values::result(std::size_t place, int round) const {
  double all = input(place, 0, round);
  for (int rank = 1; rank < ranks_; ++rank) {
    all = combined(op_, all, input(place, rank, round));
  }
  if (!mean_) return all;
  const double scale = 1.0 / ranks_;
  return engine::size_of(dtype_) == 2 ? double(float(all) * float(scale)) : all * scale;
}

template <class Number>
void Values::fill(const Number& number) {
  const std::size_t width = engine::size_of(dtype_), period = kPeriod * width;
  for (std::size_t place = 0; place < kPeriod; ++place)
    store(dtype_, number(place), table_.data() + place * width);
  for (std::size_t at = period; at < table_.size(); at += period)
    std::memcpy(table_.data() + at, table_.data(), period);
}

void Values::write(std::byte* data, std::size_t first, std::size_t count, int rank, int round) {
  fill([&](std::size_t place) { return input(place, rank, round); });
  const std::size_t width = engine::size_of(dtype_), begin = first % kPeriod * width;
  for (std::size_t at = 0; at < count; at += kChunk)
    std::memcpy(data + at * width, table_.data() + begin, std::min(kChunk, count - at) * width);
}

std::size_t Values::wrong(const std::byte* data, std::size_t first, std::size_t count, int round) {
  fill([&](std::size_t place) { return result(place, round); });
  return different(data, first, count);
}

std::size_t Values::wrong_copies(const std::byte* data, std::size_t first, std::size_t count,
                                 int rank, int round) {
  fill([&](std::size_t place) { return input(place, rank, round); });
  return different(data, first, count);
}

std::size_t Values::different(const std::byte* data, std::size_t first, std::size_t count) const {
  const std::size_t width = engine::size_of(dtype_);
  const std::byte* const right = table_.data() + first % kPeriod * width;
  std::size_t sum = 0;
  for (std::size_t at = 0; at < count; at += kChunk) {
    const std::byte* const mine = data + at * width;
    const std::size_t elements = std::min(kChunk, count - at);
    if (std::memcmp(mine, right, elements * width) == 0) continue;
    for (std::size_t i = 0; i < elements; ++i)
      sum += std::memcmp(mine + i * width, right + i * width, width) != 0;
  }
  return sum;
}

}  // namespace lockstep::tools::bench
