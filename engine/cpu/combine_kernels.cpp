// SPDX-License-Identifier: MIT
// There is one loop per operation, number of sources and type. Non-temporal stores and prefetching
// are branches in it, since these cost nothing there.
#include "engine/cpu/combine_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/combine_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/cpu/groups-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns the minimum or maximum. NaN wins over all numbers.
template <bool kLargest>
struct Extreme {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    auto other = kLargest ? hn::Gt(b, a) : hn::Lt(b, a);
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) other = hn::Or(other, hn::IsNaN(b));
    return hn::IfThenElse(other, b, a);
  }
};

// Applies the operation that `op` names.
struct Any {
  ReduceOp op = ReduceOp::kSum;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    if (op == ReduceOp::kSum) return Sum()(d, a, b);
    if (op == ReduceOp::kProduct) return Product()(d, a, b);
    return op == ReduceOp::kMin ? Extreme<false>()(d, a, b) : Extreme<true>()(d, a, b);
  }
};

// Prefetches the lines of `bytes` bytes of several targets for writing.
HWY_INLINE void ask_to_write(const Targets& targets, std::size_t first, std::size_t bytes) {
  for (std::size_t t = 0; t < targets.to.size(); ++t)
    for (std::size_t at = first; at < first + bytes; at += kLine)
      __builtin_prefetch(targets.at(t) + at, 1);
}

// Runs the loop: combines sources of In as a balanced tree of Op and stores targets of Out.
template <class In, class Out, std::size_t kSources, class Op>
HWY_NOINLINE void join(const CombineGroups& g, Op op) {
  using Number = Computed<In>;
  const GroupLanes<Number> d;
  constexpr std::size_t kStep = 4 * hn::MaxLanes(d), kSize = sizeof(Out);
  constexpr std::size_t kReadAhead = 2048 / sizeof(In), kWriteAhead = 4096 / kSize;
  const In* from[kSources];
  for (std::size_t s = 0; s < kSources; ++s) from[s] = reinterpret_cast<const In*>(g.from[s]);
  const Targets targets = g.targets;
  const bool scaled = g.op == ReduceOp::kSum && g.scale != 1, reads = g.read_ahead;
  const auto scale = hn::Set(d, Number(std::is_floating_point_v<Number> ? g.scale : 1));
  const std::size_t count = g.groups * kGroupBytes / sizeof(Number);
  const std::size_t asked = !targets.stream && targets.to.size() > 1 ? count : 0;
  const std::size_t ahead = reads ? kReadAhead : kWriteAhead;
  if (!reads) ask_to_write(targets, 0, std::min(ahead, asked) * kSize);
  const std::size_t end = asked >= ahead + kStep ? asked - ahead - kStep + 1 : 0;
  for (std::size_t i = 0; i < count; i += kStep) {
    if (i < end) {
      if (!reads) ask_to_write(targets, (i + ahead) * kSize, kStep * kSize);
      for (std::size_t at = 0; reads && at < kStep; at += kLine / sizeof(In))
        for (std::size_t s = 0; s < kSources; ++s) __builtin_prefetch(from[s] + i + ahead + at, 0);
    }
    auto x = tree_of_four<kSources>(d, op, from, i);
    if constexpr (std::is_floating_point_v<Number> &&
                  (std::is_same_v<Op, Sum> || std::is_same_v<Op, Any>))
      if (HWY_UNLIKELY(scaled)) x = join_four(d, Product(), x, {scale, scale, scale, scale});
    store_four<Out, false>(d, x, targets, i);
  }
  if (targets.stream) hwy::FlushStream();
}

template <class In, class Out>
void sum(const CombineGroups& g) {
  switch (g.sources) {
    case 1:
      return join<In, Out, 1>(g, Sum());
    case 2:
      return join<In, Out, 2>(g, Sum());
    case 3:
      return join<In, Out, 3>(g, Sum());
    default:
      return join<In, Out, 4>(g, Sum());
  }
}

template <class T>
void with_type(const CombineGroups& g) {
  if (g.op == ReduceOp::kSum) return sum<T, T>(g);
  if constexpr (HWY_TARGET == HWY_SCALAR) {  // speed does not matter here
    join<T, T, 2>(g, Any{g.op});
  } else if (g.op == ReduceOp::kProduct) {
    join<T, T, 2>(g, Product());
  } else if (g.op == ReduceOp::kMin) {
    join<T, T, 2>(g, Extreme<false>());
  } else {
    join<T, T, 2>(g, Extreme<true>());
  }
}

// Kernels for 16-bit numbers. combine_halves mixes them with float32, which its blocks hold.
template <class T>
void with_narrow(const CombineGroups& g) {
  if (g.source == g.target) return with_type<T>(g);
  if (g.source != DType::kFloat32)
    return g.op == ReduceOp::kSum ? sum<T, float>(g) : join<T, float, 2>(g, Any{g.op});
  g.sources == 1 ? join<float, T, 1>(g, Sum()) : join<float, T, 2>(g, Any{g.op});
}

void Combine(const CombineGroups& g) {
  switch (std::max(g.source, g.target)) {  // the 16-bit types are the last
    case DType::kFloat32:
      return with_type<float>(g);
    case DType::kFloat64:
      return with_type<double>(g);
    case DType::kInt32:
      return with_type<std::int32_t>(g);
    case DType::kInt64:
      return with_type<std::int64_t>(g);
    case DType::kFloat16:
      return with_narrow<Half>(g);
    case DType::kBFloat16:
      return with_narrow<BFloat16>(g);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(Combine);

void combine_groups(const CombineGroups& groups) {
  HWY_DYNAMIC_DISPATCH(Combine)(groups);
}

}  // namespace lockstep::engine::cpu
#endif
