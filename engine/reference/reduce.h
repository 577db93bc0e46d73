// SPDX-License-Identifier: MIT
// Reference: the arithmetic of collectives. Sources are added in their own type, 16-bit types in
// float32, as the balanced tree that engine/ops/reduce.h specifies. The epilogue is computed in
// double precision, for 16-bit types in float32. All types are supported, whatever the type of the
// device's tensors.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/ops/checks.h"
#include "engine/ops/reduce.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

// Names the type in which T is computed.
template <class T>
using Computed = std::conditional_t<sizeof(T) == 2, float, T>;

// Makes integers wrap around, as unsigned ones do.
template <class T>
struct Wrapping {
  using Type = T;
};
template <class T>
requires std::is_integral_v<T>
struct Wrapping<T> {
  using Type = std::make_unsigned_t<T>;
};

template <class T>
T combined(ReduceOp op, T a, T b) {
  using W = typename Wrapping<T>::Type;
  const bool none = b != b;  // NaN wins over all numbers
  switch (op) {
    case ReduceOp::kSum:
      return T(W(a) + W(b));
    case ReduceOp::kProduct:
      return T(W(a) * W(b));
    case ReduceOp::kMin:
      return b < a || none ? b : a;
    case ReduceOp::kMax:
      return b > a || none ? b : a;
  }
  broken("a reduction that does not exist");
}

// Returns the reduction of element i over all sources.
template <class T>
Computed<T> tree(ReduceOp op, std::span<const std::byte* const> from, std::size_t i) {
  if (from.size() == 1) return reinterpret_cast<const T*>(from[0])[i];
  const std::size_t half = (from.size() + 1) / 2;
  return combined<Computed<T>>(op, tree<T>(op, from.first(half), i),
                               tree<T>(op, from.subspan(half), i));
}

// Returns the new weight of element i from its gradient, by the formulas of update_rule.h. T is the
// type of the slots and the old weights.
template <class T>
double updated(const ReduceArguments& a, const std::byte* weights, std::size_t i, double gradient) {
  const UpdateRule& rule = *a.update.rule;
  const double weight = double(reinterpret_cast<const T*>(weights)[i]);
  const auto slot = [&](std::size_t s) -> T& { return reinterpret_cast<T*>(a.update.slots[s])[i]; };
  const double rate = a.update.state->rate;
  double g = gradient * gradient_scale(a);
  const double weight_decay = a.update.decays ? rule.weight_decay : 0.0;
  if (rule.kind != UpdateKind::kAdamW) g += weight_decay * weight;
  if (rule.kind == UpdateKind::kSgd) {
    if (rule.momentum == 0) return weight - rate * g;
    const double v = rule.momentum * double(slot(0)) + g;
    slot(0) = T(v);
    return weight - rate * (rule.nesterov ? g + rule.momentum * v : v);
  }
  if (rule.kind == UpdateKind::kLars) {
    const double v = rule.momentum * double(slot(0)) + rate * local_rate_of(a) * g;
    slot(0) = T(v);
    return weight - v;
  }
  const double m = rule.beta1 * double(slot(0)) + (1 - rule.beta1) * g;
  const double v = rule.beta2 * double(slot(1)) + (1 - rule.beta2) * g * g;
  slot(0) = T(m);
  slot(1) = T(v);
  const double t = double(updates_before(a)) + 1;
  const double mhat = m / (1 - std::pow(rule.beta1, t));
  const double vhat = v / (1 - std::pow(rule.beta2, t));
  const double decay = rule.kind == UpdateKind::kAdamW ? rate * weight_decay * weight : 0.0;
  return weight - decay - rate * mhat / (std::sqrt(vhat) + rule.epsilon);
}

// Reduces elements [first, first + count).
template <class T>
void reduce_block(const ReduceArguments& a, std::size_t first, std::size_t count) {
  std::array<T, kBlock> results{};
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Computed<T> sum = tree<T>(a.op, a.from, first + i);
    results[i] = T(sum);
    squares += double(results[i]) * double(results[i]);
    if constexpr (sizeof(T) == 2) {
      if (a.epilogue == Epilogue::kScale) results[i] = T(sum * float(a.scale));
      if (a.epilogue == Epilogue::kUpdate) {
        float& master = reinterpret_cast<float*>(a.update.master)[first + i];
        master = float(updated<float>(a, a.update.master, first + i, double(sum)));
        results[i] = T(master);
      }
    } else {
      if (a.epilogue == Epilogue::kScale) results[i] = T(double(sum) * a.scale);
      if (a.epilogue == Epilogue::kRound) results[i] = T(float(BFloat16(sum)));
      if (a.epilogue == Epilogue::kUpdate)
        results[i] = T(updated<T>(a, a.update.weight, first + i, double(sum)));
    }
  }
  if (a.epilogue == Epilogue::kSquares) *a.squares = squares;
  const bool as_is = a.epilogue == Epilogue::kNone || a.epilogue == Epilogue::kSquares;
  if (sizeof(T) == 2 && a.from.size() == 1 && as_is) {
    std::copy_n(reinterpret_cast<const T*>(a.from[0]) + first, count, results.data());
  }
  for (std::byte* to : a.to) std::copy_n(results.data(), count, reinterpret_cast<T*>(to) + first);
}

template <class T>
void reduce_blocks(const ReduceArguments& a) {
  for (std::size_t first = 0; first == 0 || first < a.count; first += kBlock)
    reduce_block<T>(a, first, std::min(kBlock, a.count - first));
}

// Converts numbers from one type to the other.
template <class From, class To>
void convert(const ReduceArguments& a) {
  for (std::byte* to : a.to)
    for (std::size_t i = 0; i < a.count; ++i)
      reinterpret_cast<To*>(to)[i] = To(float(reinterpret_cast<const From*>(a.from[0])[i]));
}

template <class T>
void ReferenceOps<T>::reduce(const ReduceArguments& arguments) const {
  check_reduce(arguments);
  if (arguments.epilogue == Epilogue::kUpdate && is_skipped(arguments)) return;
  if (arguments.target && *arguments.target == DType::kBFloat16)
    return convert<float, BFloat16>(arguments);
  if (arguments.target) return convert<BFloat16, float>(arguments);
  switch (arguments.dtype) {
    case DType::kFloat32:
      return reduce_blocks<float>(arguments);
    case DType::kFloat64:
      return reduce_blocks<double>(arguments);
    case DType::kInt32:
      return reduce_blocks<std::int32_t>(arguments);
    case DType::kInt64:
      return reduce_blocks<std::int64_t>(arguments);
    case DType::kFloat16:
      return reduce_blocks<Half>(arguments);
    case DType::kBFloat16:
      return reduce_blocks<BFloat16>(arguments);
  }
  broken("a reduction of an element type that does not exist");
}

}  // namespace lockstep::engine
