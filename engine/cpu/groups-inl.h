// SPDX-License-Identifier: MIT
// Operations on four vectors at a time, once per instruction set (Highway's include idiom): loads,
// balanced trees, stores to all targets. Non-temporal stores are a branch, because two loops would
// take twice as long to compile.
#if defined(LOCKSTEP_ENGINE_CPU_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_CPU_GROUPS_INL_H_
#undef LOCKSTEP_ENGINE_CPU_GROUPS_INL_H_
#else
#define LOCKSTEP_ENGINE_CPU_GROUPS_INL_H_
#endif

#include "engine/cpu/groups.h"
#include "engine/cpu/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Names vectors of numbers in the type of computation; four of them divide a group.
template <class Number>
using GroupLanes = hn::CappedTag<Number, kLine / sizeof(Number)>;

template <class D>
struct Four {
  hn::Vec<D> a, b, c, e;
};

// Loads elements i, i + 1, ... of `from`.
template <class D, class T>
HWY_INLINE Four<D> load_four(D d, const T* from, std::size_t i) {
  constexpr std::size_t kWidth = hn::MaxLanes(D());
  from += i;
  return {load(d, from), load(d, from + kWidth), load(d, from + 2 * kWidth),
          load(d, from + 3 * kWidth)};
}

// Combines vectors pairwise by `op`.
template <class D, class Op>
HWY_INLINE Four<D> join_four(D d, Op op, const Four<D>& x, const Four<D>& y) {
  return {op(d, x.a, y.a), op(d, x.b, y.b), op(d, x.c, y.c), op(d, x.e, y.e)};
}

struct Sum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};

// Returns the balanced tree over elements i, i + 1, ... of `from`.
template <std::size_t kSources, class D, class Op, class In>
HWY_INLINE Four<D> tree_of_four(D d, Op op, const In* const* from, std::size_t i) {
  if constexpr (kSources == 1) {
    return load_four(d, from[0], i);
  } else {
    constexpr std::size_t kHalf = (kSources + 1) / 2;
    return join_four(d, op, tree_of_four<kHalf>(d, op, from, i),
                     tree_of_four<kSources - kHalf>(d, op, from + kHalf, i));
  }
}

// Stores all vectors, one after the other, to every target, `at` bytes from its beginning. There is
// at least one target. kOwn: one of them may be targets.own.
template <bool kOwn, class D, class... V>
HWY_INLINE void store_all(D d, const Targets& targets, std::size_t at, V... vectors) {
  using Element = hn::TFromD<D>;
  std::size_t t = 0;
  do {
    auto* to = reinterpret_cast<Element*>(targets.at(t) + at);
    if (HWY_UNLIKELY(targets.stream) && (!kOwn || targets.at(t) != targets.own)) {
      ((hn::Stream(vectors, d, to), to += hn::MaxLanes(d)), ...);
    } else {
      ((hn::StoreU(vectors, d, to), to += hn::MaxLanes(d)), ...);
    }
  } while (++t < targets.to.size());
}

// Stores x as elements i, i + 1, ... of T.
template <class T, bool kOwn, class D>
HWY_INLINE void store_four(D d, const Four<D>& x, const Targets& targets, std::size_t i) {
  if constexpr (!kNarrow<T>) {
    store_all<kOwn>(d, targets, i * sizeof(T), x.a, x.b, x.c, x.e);
  } else if constexpr (hn::MaxLanes(D()) > 1) {
    store_all<kOwn>(Whole<T, D>(), targets, i * sizeof(T), packed(d, T(), x.a, x.b),
                    packed(d, T(), x.c, x.e));
  } else {
    for (std::size_t t = 0; t < targets.to.size(); ++t) {
      T* const to = reinterpret_cast<T*>(targets.at(t)) + i;
      store_two<false>(d, x.a, x.b, to);
      store_two<false>(d, x.c, x.e, to + 2);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#endif
