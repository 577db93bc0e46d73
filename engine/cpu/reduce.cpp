// SPDX-License-Identifier: MIT
// A block is summed into local memory that stays in the first cache, goes through the epilogue
// there, and is stored. So `from` and `to` may be the same memory, and every loop is free of
// aliases.
#include "engine/cpu/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "engine/base/error.h"
#include "engine/ops/checks.h"

namespace lockstep::engine::cpu {
namespace {

using Sources = std::span<const std::byte* const>;

template <class T>
struct alignas(64) Block {
  std::array<T, kBlock> values;
};

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return T(a + b);
  }
};
// Of Min and Max: a number that is none (NaN) wins over all numbers.
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return (b < a) | (b != b) ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return (b > a) | (b != b) ? b : a;
  }
};

template <class T>
const T* source(Sources from, std::size_t i) {
  return reinterpret_cast<const T*>(from[i]);
}

// The balanced tree over the sources: up to four in one pass, more as two halves.
template <class T, class Op>
void combine(Sources from, std::size_t count, Op op, T* __restrict to) {
  const T* a = source<T>(from, 0);
  if (from.size() == 1) {
    std::copy_n(a, count, to);
    return;
  }
  const T* b = source<T>(from, 1);
  if (from.size() == 2) {
    for (std::size_t i = 0; i < count; ++i) to[i] = op(a[i], b[i]);
    return;
  }
  const T* c = source<T>(from, 2);
  if (from.size() == 3) {
    for (std::size_t i = 0; i < count; ++i) to[i] = op(op(a[i], b[i]), c[i]);
    return;
  }
  if (from.size() == 4) {
    const T* d = source<T>(from, 3);
    for (std::size_t i = 0; i < count; ++i) to[i] = op(op(a[i], b[i]), op(c[i], d[i]));
    return;
  }
  const std::size_t half = (from.size() + 1) / 2;
  Block<T> rest;
  T* __restrict other = rest.values.data();
  combine<T>(from.first(half), count, op, to);
  combine<T>(from.subspan(half), count, op, other);
  for (std::size_t i = 0; i < count; ++i) to[i] = op(to[i], other[i]);
}

// Eight running sums, so that the order of adding is fixed and the loop is wide.
template <class T>
double sum_of_squares(const T* values, std::size_t count) {
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      sums[lane] += double(values[i + lane]) * double(values[i + lane]);
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    sums[lane] += double(values[i]) * double(values[i]);
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Replaces gradients by new weights; update_rule.h has the formulas. What does not depend on the
// element is computed first, in double precision.
template <class T>
void sgd(const ReduceArguments& a, T* __restrict values) {
  const UpdateRule& rule = *a.rule;
  const T* w = reinterpret_cast<const T*>(a.weight);
  const T scale = T(a.scale), rate = T(a.state->rate), decay = T(rule.weight_decay);
  if (rule.momentum == 0) {
    for (std::size_t i = 0; i < a.count; ++i) {
      values[i] = w[i] - rate * (scale * values[i] + decay * w[i]);
    }
    return;
  }
  const T momentum = T(rule.momentum);
  T* velocities = reinterpret_cast<T*>(a.slots[0]);
  const T of_gradient = rule.nesterov ? T(1) : T(0);
  const T of_velocity = rule.nesterov ? momentum : T(1);
#pragma GCC ivdep
  for (std::size_t i = 0; i < a.count; ++i) {
    const T g = scale * values[i] + decay * w[i];
    const T v = momentum * velocities[i] + g;
    velocities[i] = v;
    values[i] = w[i] - rate * (of_gradient * g + of_velocity * v);
  }
}

template <class T>
void adam(const ReduceArguments& a, T* __restrict values) {
  const UpdateRule& rule = *a.rule;
  const double t = double(a.state->step) + 1;
  const bool apart = rule.kind == UpdateKind::kAdamW;
  const T* w = reinterpret_cast<const T*>(a.weight);
  T* firsts = reinterpret_cast<T*>(a.slots[0]);
  T* seconds = reinterpret_cast<T*>(a.slots[1]);
  const T scale = T(a.scale), epsilon = T(rule.epsilon);
  const T beta1 = T(rule.beta1), beta2 = T(rule.beta2);
  const T rest1 = T(1 - rule.beta1), rest2 = T(1 - rule.beta2);
  const T decay = apart ? T(0) : T(rule.weight_decay);
  const T shrink = apart ? T(a.state->rate * rule.weight_decay) : T(0);
  const T rate = T(a.state->rate / (1 - std::pow(rule.beta1, t)));
  const T correct2 = T(1 / (1 - std::pow(rule.beta2, t)));
#pragma GCC ivdep
  for (std::size_t i = 0; i < a.count; ++i) {
    const T g = scale * values[i] + decay * w[i];
    const T m = beta1 * firsts[i] + rest1 * g;
    const T v = beta2 * seconds[i] + rest2 * g * g;
    firsts[i] = m;
    seconds[i] = v;
    values[i] = w[i] - shrink * w[i] - rate * m / (std::sqrt(v * correct2) + epsilon);
  }
}

template <class T>
void reduce_block(const ReduceArguments& a) {
  Block<T> block;
  T* values = block.values.data();
  switch (a.op) {
    case ReduceOp::kSum:
      combine<T>(a.from, a.count, Sum(), values);
      break;
    case ReduceOp::kMin:
      combine<T>(a.from, a.count, Min(), values);
      break;
    case ReduceOp::kMax:
      combine<T>(a.from, a.count, Max(), values);
      break;
  }
  switch (a.epilogue) {
    case Epilogue::kNone:
      break;
    case Epilogue::kScale:
      for (std::size_t i = 0; i < a.count; ++i) values[i] = T(double(values[i]) * a.scale);
      break;
    case Epilogue::kSquares:
      *a.squares = sum_of_squares(values, a.count);
      break;
    case Epilogue::kUpdate:
      if constexpr (std::is_floating_point_v<T>) {
        a.rule->kind == UpdateKind::kSgd ? sgd(a, values) : adam(a, values);
      }
      break;
  }
  for (std::byte* to : a.to) std::memcpy(to, values, a.count * sizeof(T));
}

}  // namespace

void reduce(const ReduceArguments& arguments) {
  check_reduce(arguments);
  switch (arguments.dtype) {
    case DType::kFloat32:
      return reduce_block<float>(arguments);
    case DType::kFloat64:
      return reduce_block<double>(arguments);
    case DType::kInt32:
      return reduce_block<std::int32_t>(arguments);
    case DType::kInt64:
      return reduce_block<std::int64_t>(arguments);
  }
  broken("a reduction of an element type that does not exist");
}

}  // namespace lockstep::engine::cpu
