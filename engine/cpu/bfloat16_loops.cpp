// SPDX-License-Identifier: MIT
#include "engine/cpu/bfloat16_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/bfloat16_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "engine/cpu/loops.h"
#include "engine/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

// Calls body(i) for each whole vector, and tail(i) for each remaining number.
template <class Body, class Tail>
HWY_INLINE void each_vector(std::size_t count, Body body, Tail tail) {
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) body(i);
  for (; i < count; ++i) tail(i);
}

void Widen(const BFloat16* from, float* to, std::size_t count) {
  each_vector(
      count, [&](std::size_t i) { store(load(from + i), to + i); },
      [&](std::size_t i) { to[i] = from[i]; });
}

void Narrow16(const float* from, BFloat16* to, std::size_t count) {
  each_vector(
      count, [&](std::size_t i) { store(load(from + i), to + i); },
      [&](std::size_t i) { to[i] = BFloat16(from[i]); });
}

void AddSums(const float* sums, BFloat16* to, std::size_t count) {
  each_vector(
      count, [&](std::size_t i) { store(hn::Add(load(to + i), load(sums + i)), to + i); },
      [&](std::size_t i) { to[i] = BFloat16(to[i] + sums[i]); });
}

void Relu(const BFloat16* x, BFloat16* y, std::size_t count) {
  each_vector(
      count, [&](std::size_t i) { store(cut(load(x + i)), y + i); },
      [&](std::size_t i) { y[i] = x[i] < 0 ? BFloat16() : x[i]; });
}

void Mask(const BFloat16* y, const BFloat16* dy, BFloat16* dx, std::size_t count) {
  each_vector(
      count,
      [&](std::size_t i) {
        store(hn::IfThenElseZero(hn::Gt(load(y + i), zero()), load(dy + i)), dx + i);
      },
      [&](std::size_t i) { dx[i] = y[i] > 0 ? dy[i] : BFloat16(); });
}

void Add16(const BFloat16* a, const BFloat16* b, BFloat16* y, std::size_t count) {
  each_vector(
      count, [&](std::size_t i) { store(hn::Add(load(a + i), load(b + i)), y + i); },
      [&](std::size_t i) { y[i] = BFloat16(a[i] + b[i]); });
}

// Sums a strip of V vectors of columns in registers.
template <std::size_t V>
HWY_INLINE void sum_strip(const BFloat16* x, std::size_t rows, std::size_t columns, BFloat16* sums,
                          bool accumulate) {
  Vector total[V];
  HWY_UNROLL(8)
  for (std::size_t j = 0; j < V; ++j) total[j] = accumulate ? load(sums + j * kWidth) : zero();
  for (std::size_t r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (std::size_t j = 0; j < V; ++j) {
      total[j] = hn::Add(total[j], load(x + r * columns + j * kWidth));
    }
  }
  HWY_UNROLL(8)
  for (std::size_t j = 0; j < V; ++j) store(total[j], sums + j * kWidth);
}

void ColumnSums(const BFloat16* x, std::size_t rows, std::size_t columns, BFloat16* sums,
                bool accumulate) {
  std::size_t c = 0;
  for (; c + 8 * kWidth <= columns; c += 8 * kWidth) {
    sum_strip<8>(x + c, rows, columns, sums + c, accumulate);
  }
  for (; c + kWidth <= columns; c += kWidth) {
    sum_strip<1>(x + c, rows, columns, sums + c, accumulate);
  }
  for (; c < columns; ++c) {
    float total = accumulate ? float(sums[c]) : 0.0f;
    for (std::size_t r = 0; r < rows; ++r) total += x[r * columns + c];
    sums[c] = BFloat16(total);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {
namespace {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow16);
HWY_EXPORT(AddSums);
HWY_EXPORT(Relu);
HWY_EXPORT(Mask);
HWY_EXPORT(Add16);
HWY_EXPORT(ColumnSums);

// Numbers that pass through the float32 loops at a time; they stay in the L1 cache.
constexpr std::size_t kBlock = 1024;
using Block = std::array<float, kBlock>;

}  // namespace

void widen(const BFloat16* from, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, to, count);
}

void narrow(const float* from, BFloat16* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(Narrow16)(from, to, count);
}

void narrow_sums(const float* sums, BFloat16* to, std::size_t count, bool accumulate) {
  if (!accumulate) return narrow(sums, to, count);
  HWY_DYNAMIC_DISPATCH(AddSums)(sums, to, count);
}

void relu(const BFloat16* x, BFloat16* y, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(Relu)(x, y, count);
}

void mask(const BFloat16* y, const BFloat16* dy, BFloat16* dx, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(Mask)(y, dy, dx, count);
}

void tanh(const BFloat16* x, BFloat16* y, std::size_t count) {
  Block block;
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t some = std::min(kBlock, count - i);
    widen(x + i, block.data(), some);
    tanh(block.data(), block.data(), some);
    narrow(block.data(), y + i, some);
  }
}

void tanh_gradient(const BFloat16* y, const BFloat16* dy, BFloat16* dx, std::size_t count) {
  Block values, gradients;
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t some = std::min(kBlock, count - i);
    widen(y + i, values.data(), some);
    widen(dy + i, gradients.data(), some);
    tanh_gradient(values.data(), gradients.data(), gradients.data(), some);
    narrow(gradients.data(), dx + i, some);
  }
}

void add(const BFloat16* a, const BFloat16* b, BFloat16* y, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(Add16)(a, b, y, count);
}

void column_sums(const BFloat16* x, std::size_t rows, std::size_t columns, BFloat16* sums,
                 bool accumulate) {
  HWY_DYNAMIC_DISPATCH(ColumnSums)(x, rows, columns, sums, accumulate);
}

}  // namespace lockstep::engine::cpu
#endif
