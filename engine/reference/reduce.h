// SPDX-License-Identifier: MIT
// Reference: the arithmetic of collectives. Sources are added in their own type, as the balanced
// tree that reduce.h (engine/ops) promises; what follows the sum is done in double precision. It
// works on any of the four types, whatever the type of the device's tensors.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "engine/base/error.h"
#include "engine/ops/checks.h"
#include "engine/ops/reduce.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

template <class T>
T combined(ReduceOp op, T a, T b) {
  const bool none = b != b;  // a number that is none wins over all numbers
  switch (op) {
    case ReduceOp::kSum:
      return T(a + b);
    case ReduceOp::kMin:
      return b < a || none ? b : a;
    case ReduceOp::kMax:
      return b > a || none ? b : a;
  }
  broken("a reduction that does not exist");
}

// Element i of all sources.
template <class T>
T tree(ReduceOp op, std::span<const std::byte* const> from, std::size_t i) {
  if (from.size() == 1) return reinterpret_cast<const T*>(from[0])[i];
  const std::size_t half = (from.size() + 1) / 2;
  return combined(op, tree<T>(op, from.first(half), i), tree<T>(op, from.subspan(half), i));
}

// The new weight of element i from its gradient, by the formulas of update_rule.h.
template <class T>
double updated(const ReduceArguments& a, std::size_t i, double gradient) {
  const UpdateRule& rule = *a.rule;
  const double weight = double(reinterpret_cast<const T*>(a.weight)[i]);
  const auto slot = [&](std::size_t s) -> T& { return reinterpret_cast<T*>(a.slots[s])[i]; };
  const double rate = a.state->rate;
  double g = gradient * a.scale;
  if (rule.kind != UpdateKind::kAdamW) g += rule.weight_decay * weight;
  if (rule.kind == UpdateKind::kSgd) {
    if (rule.momentum == 0) return weight - rate * g;
    const double v = rule.momentum * double(slot(0)) + g;
    slot(0) = T(v);
    return weight - rate * (rule.nesterov ? g + rule.momentum * v : v);
  }
  const double m = rule.beta1 * double(slot(0)) + (1 - rule.beta1) * g;
  const double v = rule.beta2 * double(slot(1)) + (1 - rule.beta2) * g * g;
  slot(0) = T(m);
  slot(1) = T(v);
  const double t = double(a.state->step) + 1;
  const double mhat = m / (1 - std::pow(rule.beta1, t));
  const double vhat = v / (1 - std::pow(rule.beta2, t));
  const double decay = rule.kind == UpdateKind::kAdamW ? rate * rule.weight_decay * weight : 0.0;
  return weight - decay - rate * mhat / (std::sqrt(vhat) + rule.epsilon);
}

// Elements [first, first + count).
template <class T>
void reduce_block(const ReduceArguments& a, std::size_t first, std::size_t count) {
  std::array<T, kBlock> results{};
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const T sum = tree<T>(a.op, a.from, first + i);
    squares += double(sum) * double(sum);
    results[i] = sum;
    if (a.epilogue == Epilogue::kScale) results[i] = T(double(sum) * a.scale);
    if (a.epilogue == Epilogue::kUpdate) results[i] = T(updated<T>(a, first + i, double(sum)));
  }
  if (a.epilogue == Epilogue::kSquares) *a.squares = squares;
  for (std::byte* to : a.to) std::copy_n(results.data(), count, reinterpret_cast<T*>(to) + first);
}

template <class T>
void reduce_blocks(const ReduceArguments& a) {
  for (std::size_t first = 0; first == 0 || first < a.count; first += kBlock)
    reduce_block<T>(a, first, std::min(kBlock, a.count - first));
}

template <class T>
void ReferenceOps<T>::reduce(const ReduceArguments& arguments) const {
  check_reduce(arguments);
  switch (arguments.dtype) {
    case DType::kFloat32:
      return reduce_blocks<float>(arguments);
    case DType::kFloat64:
      return reduce_blocks<double>(arguments);
    case DType::kInt32:
      return reduce_blocks<std::int32_t>(arguments);
    case DType::kInt64:
      return reduce_blocks<std::int64_t>(arguments);
  }
  broken("a reduction of an element type that does not exist");
}

}  // namespace lockstep::engine
