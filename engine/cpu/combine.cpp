// SPDX-License-Identifier: MIT
// Up to four sources are added in registers, four vectors of each at a time, so that as many loads
// are under way as the core can wait for; other operations join two. More sources are two halves,
// each combined into a block that stays in the first cache. Numbers of 16 bits are float32 in
// registers and in those blocks, and are rounded where they are stored into targets.
//
// Several targets are memory of several cores. Their lines are asked for some way ahead as lines to
// be written: else a line that another core has changed moves twice, first to be read and again to
// be written, and stores wait for their lines one after the other. Some processors do better when
// targets that are sources are asked for a little ahead as lines to be read: `read_ahead`. Targets
// apart from all sources are a third pass over memory where they are not in a cache; `stream`
// writes whole lines without fetching them first.
#include "engine/cpu/combine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/combine.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/cpu/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each operation joins two vectors, and has a last word on the result: most leave it as it is.
struct Unchanged {
  template <class D, class V>
  HWY_INLINE V end(D, V result) const {
    return result;
  }
};
struct Sum : Unchanged {
  template <class D, class V>
  HWY_INLINE V join(D, V a, V b) const {
    return hn::Add(a, b);
  }
};
template <class T>
struct ScaledSum : Sum {
  T scale;
  template <class D, class V>
  HWY_INLINE V end(D d, V sum) const {
    return hn::Mul(sum, hn::Set(d, scale));
  }
};
struct Product : Unchanged {
  template <class D, class V>
  HWY_INLINE V join(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};
// A number that is none (NaN) wins over all numbers.
template <class T, bool kLargest>
struct Extreme : Unchanged {
  template <class D, class V>
  HWY_INLINE V join(D, V a, V b) const {
    auto other = kLargest ? hn::Gt(b, a) : hn::Lt(b, a);
    if constexpr (std::is_floating_point_v<T>) other = hn::Or(other, hn::IsNaN(b));
    return hn::IfThenElse(other, b, a);
  }
};

// The balanced tree over elements i, i + 1, ... of `from`.
template <std::size_t kSources, class D, class T, class Op>
HWY_INLINE hn::Vec<D> tree(D d, const Op& op, const T* const* from, std::size_t i) {
  if constexpr (kSources == 1) {
    return load(d, from[0] + i);
  } else {
    constexpr std::size_t kHalf = (kSources + 1) / 2;
    return op.join(d, tree<kHalf>(d, op, from, i), tree<kSources - kHalf>(d, op, from + kHalf, i));
  }
}

template <std::size_t kSources, class In, class T, class Op>
class Pass {
 public:
  Pass(const Combination& c, const Op& op) : op_(op), to_(c.to), at_(c.write_at), count_(c.count) {
    for (std::size_t s = 0; s < kSources; ++s)
      from_[s] = reinterpret_cast<const In*>(c.from[s]) + c.read_at;
    if (c.stream) stream_ = aligned_alike();
    if (c.read_ahead && to_.size() > 1) read_ahead_ = in_place();
  }

  HWY_INLINE void run() const {
    std::size_t i = 0;
    if (stream_) {
      const std::size_t lead =
          std::size_t(-reinterpret_cast<std::uintptr_t>(target(0)) % kLine) / sizeof(T);
      for (; i < std::min(lead, count_); ++i) element(i);
      for (; i + 4 * kWidth <= count_; i += 4 * kWidth) four<true>(i);
      hwy::FlushStream();
    }
    const std::size_t asked = !stream_ && to_.size() > 1 ? count_ : 0;
    const std::size_t ahead = (read_ahead_ ? kReadAhead : kWriteAhead) / sizeof(T);
    if (!read_ahead_)
      for (std::size_t at = 0; at < std::min(ahead, asked); at += kLine / sizeof(T)) ask(at);
    for (; i + 4 * kWidth <= count_; i += 4 * kWidth) {
      if (i + 4 * kWidth + ahead <= asked)
        for (std::size_t at = 0; at < 4 * kWidth; at += kLine / sizeof(T)) ask(i + ahead + at);
      four<false>(i);
    }
    for (; i < count_; ++i) element(i);
  }

 private:
  static constexpr std::size_t kLine = 64;
  using Number = Computed<In>;
  using Lanes = hn::CappedTag<Number, kLine / sizeof(Number)>;
  static constexpr std::size_t kWidth = hn::MaxLanes(Lanes());
  static constexpr std::size_t kWriteAhead = 4096, kReadAhead = 2048;  // bytes

  HWY_INLINE void ask(std::size_t i) const {
    if (read_ahead_) {
      for (std::size_t s = 0; s < kSources; ++s) __builtin_prefetch(from_[s] + i, 0);
    } else {
      for (std::size_t t = 0; t < to_.size(); ++t) __builtin_prefetch(target(t) + i, 1);
    }
  }

  bool in_place() const {
    return std::any_of(from_, from_ + kSources, [&](const In* from) {
      return reinterpret_cast<const std::byte*>(from) == reinterpret_cast<std::byte*>(target(0));
    });
  }

  T* target(std::size_t t) const { return reinterpret_cast<T*>(to_[t]) + at_; }

  // Whether the targets reach the border of a cache line at the same element.
  bool aligned_alike() const {
    if (to_.empty()) return false;
    const auto place = [&](std::size_t t) {
      return reinterpret_cast<std::uintptr_t>(target(t)) % kLine;
    };
    for (std::size_t t = 1; t < to_.size(); ++t)
      if (place(t) != place(0)) return false;
    return place(0) % sizeof(T) == 0;
  }

  template <bool kStream>
  HWY_INLINE void four(std::size_t i) const {
    const Lanes d;
    const auto a = op_.end(d, tree<kSources>(d, op_, from_, i));
    const auto b = op_.end(d, tree<kSources>(d, op_, from_, i + kWidth));
    const auto c = op_.end(d, tree<kSources>(d, op_, from_, i + 2 * kWidth));
    const auto e = op_.end(d, tree<kSources>(d, op_, from_, i + 3 * kWidth));
    for (std::size_t t = 0; t < to_.size(); ++t) {
      T* const to = target(t) + i;
      store_two<kStream>(d, a, b, to);
      store_two<kStream>(d, c, e, to + 2 * kWidth);
    }
  }

  HWY_INLINE void element(std::size_t i) const {
    const hn::CappedTag<Number, 1> d;
    const auto value = op_.end(d, tree<kSources>(d, op_, from_, i));
    for (std::size_t t = 0; t < to_.size(); ++t) store_one(d, value, target(t) + i);
  }

  Op op_;
  const In* from_[kSources];
  std::span<std::byte* const> to_;
  std::size_t at_, count_;
  bool stream_ = false, read_ahead_ = false;
};

// Where the target is the narrower type, the sources are the two blocks of combine_halves.
template <class In, class Out, class Op>
void up_to_four(const Combination& c, const Op& op) {
  if constexpr (sizeof(In) > sizeof(Out)) {
    if (c.from.size() == 1) return Pass<1, In, Out, Op>(c, op).run();
    Pass<2, In, Out, Op>(c, op).run();
  } else {
    switch (c.from.size()) {
      case 1:
        return Pass<1, In, Out, Op>(c, op).run();
      case 2:
        return Pass<2, In, Out, Op>(c, op).run();
      case 3:
        return Pass<3, In, Out, Op>(c, op).run();
      default:
        return Pass<4, In, Out, Op>(c, op).run();
    }
  }
}

// One source is its own sum and minimum.
template <class In, class Out>
void with_types(const Combination& c) {
  using Number = Computed<In>;
  switch (c.from.size() > 1 ? c.op : ReduceOp::kSum) {
    case ReduceOp::kMin:
      return Pass<2, In, Out, Extreme<Number, false>>(c, {}).run();
    case ReduceOp::kMax:
      return Pass<2, In, Out, Extreme<Number, true>>(c, {}).run();
    case ReduceOp::kProduct:
      return Pass<2, In, Out, Product>(c, {}).run();
    case ReduceOp::kSum:
      break;
  }
  if constexpr (std::is_floating_point_v<Number> && sizeof(In) >= sizeof(Out)) {
    if (c.scale != 1) {
      ScaledSum<Number> op;
      op.scale = Number(c.scale);
      return up_to_four<In, Out>(c, op);
    }
  }
  up_to_four<In, Out>(c, Sum());
}

template <class T>
void with_narrow(const Combination& c) {
  if (c.source != c.target)
    return c.source == DType::kFloat32 ? with_types<float, T>(c) : with_types<T, float>(c);
  if (c.from.size() == 1 && c.scale == 1)  // a copy
    return Pass<1, std::int16_t, std::int16_t, Sum>(c, {}).run();
  with_types<T, T>(c);
}

void CombineInRegisters(const Combination& c) {
  switch (std::max(c.source, c.target)) {  // the narrow ones are the last
    case DType::kFloat32:
      return with_types<float, float>(c);
    case DType::kFloat64:
      return with_types<double, double>(c);
    case DType::kInt32:
      return with_types<std::int32_t, std::int32_t>(c);
    case DType::kInt64:
      return with_types<std::int64_t, std::int64_t>(c);
    case DType::kFloat16:
      return with_narrow<Half>(c);
    case DType::kBFloat16:
      return with_narrow<BFloat16>(c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(CombineInRegisters);

namespace {

// Sources. Sums are what is asked for, and each number of sources is a kernel for each type and
// instruction set.
std::size_t most_in_registers(ReduceOp op) {
  return op == ReduceOp::kSum ? kSummedAtOnce : 2;
}

struct alignas(64) Block {
  std::array<std::byte, kBlock * sizeof(double)> bytes;
};

// More sources than registers hold, block by block.
void combine_halves(const Combination& whole) {
  const std::size_t half = (whole.from.size() + 1) / 2;
  Block left, right;
  std::byte* const to_left[] = {left.bytes.data()};
  std::byte* const to_right[] = {right.bytes.data()};
  const std::byte* const both[] = {left.bytes.data(), right.bytes.data()};
  const DType between = size_of(whole.source) == 2 ? DType::kFloat32 : whole.source;
  for (std::size_t at = 0; at < whole.count; at += kBlock) {
    Combination part{.source = whole.source, .target = between, .op = whole.op};
    part.count = std::min(kBlock, whole.count - at);
    part.read_at = whole.read_at + at;
    part.from = whole.from.first(half), part.to = to_left;
    combine(part);
    part.from = whole.from.subspan(half), part.to = to_right;
    combine(part);
    part.source = between, part.target = whole.target;
    part.read_at = 0, part.write_at = whole.write_at + at;
    part.from = both, part.to = whole.to;
    part.scale = whole.scale, part.stream = whole.stream;
    combine(part);
  }
}

}  // namespace

void combine(const Combination& c) {
  if (c.from.size() <= most_in_registers(c.op)) return HWY_DYNAMIC_DISPATCH(CombineInRegisters)(c);
  combine_halves(c);
}

bool scales_in_registers(DType dtype, double scale) {
  if (dtype == DType::kFloat32) return double(float(scale)) == scale;
  return !is_integer(dtype);
}

}  // namespace lockstep::engine::cpu
#endif
