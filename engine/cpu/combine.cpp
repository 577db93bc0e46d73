// SPDX-License-Identifier: MIT
// Up to four sources are combined in registers, four vectors of each at a time, so that as many
// loads are under way as the core can wait for. More sources are two halves, each combined into a
// block that stays in the first cache.
//
// Several targets are memory of several cores. Their lines are asked for some way ahead as lines to
// be written: else a line that another core has changed moves twice, first to be read and again to
// be written, and stores wait for their lines one after the other. Targets apart from all sources
// are a third pass over memory where they are not in a cache; `stream` writes whole lines without
// fetching them first.
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

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each operation joins two vectors, and has a last word on the result.
template <class T>
struct Sum {
  template <class D, class V>
  HWY_INLINE V join(D, V a, V b) const {
    return hn::Add(a, b);
  }
  template <class D, class V>
  HWY_INLINE V end(D, V sum) const {
    return sum;
  }
};
template <class T>
struct ScaledSum : Sum<T> {
  T scale;
  template <class D, class V>
  HWY_INLINE V end(D d, V sum) const {
    return hn::Mul(sum, hn::Set(d, scale));
  }
};
// A number that is none (NaN) wins over all numbers.
template <class T, bool kLargest>
struct Extreme {
  template <class D, class V>
  HWY_INLINE V join(D, V a, V b) const {
    auto other = kLargest ? hn::Gt(b, a) : hn::Lt(b, a);
    if constexpr (std::is_floating_point_v<T>) other = hn::Or(other, hn::IsNaN(b));
    return hn::IfThenElse(other, b, a);
  }
  template <class D, class V>
  HWY_INLINE V end(D, V value) const {
    return value;
  }
};

// The balanced tree over elements i, i + 1, ... of `from`.
template <std::size_t kSources, class D, class Op>
HWY_INLINE hn::Vec<D> tree(D d, const Op& op, const hn::TFromD<D>* const* from, std::size_t i) {
  if constexpr (kSources == 1) {
    return hn::LoadU(d, from[0] + i);
  } else {
    constexpr std::size_t kHalf = (kSources + 1) / 2;
    return op.join(d, tree<kHalf>(d, op, from, i), tree<kSources - kHalf>(d, op, from + kHalf, i));
  }
}

template <std::size_t kSources, class T, class Op>
class Pass {
 public:
  Pass(const Combination& c, const Op& op) : op_(op), to_(c.to), at_(c.write_at), count_(c.count) {
    for (std::size_t s = 0; s < kSources; ++s)
      from_[s] = reinterpret_cast<const T*>(c.from[s]) + c.read_at;
    if (c.stream) stream_ = aligned_alike();
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
    if (!stream_ && to_.size() > 1) {
      for (std::size_t at = 0; at < std::min(kAhead, count_); at += kLine / sizeof(T)) ask(at);
      for (; i + 4 * kWidth + kAhead <= count_; i += 4 * kWidth) {
        for (std::size_t at = 0; at < 4 * kWidth; at += kLine / sizeof(T)) ask(i + kAhead + at);
        four<false>(i);
      }
    }
    for (; i + 4 * kWidth <= count_; i += 4 * kWidth) four<false>(i);
    for (; i < count_; ++i) element(i);
  }

 private:
  static constexpr std::size_t kLine = 64;
  using Lanes = hn::CappedTag<T, kLine / sizeof(T)>;
  static constexpr std::size_t kWidth = hn::MaxLanes(Lanes());
  static constexpr std::size_t kAhead = 4096 / sizeof(T);  // elements

  HWY_INLINE void ask(std::size_t i) const {
    for (std::size_t t = 0; t < to_.size(); ++t) __builtin_prefetch(target(t) + i, 1);
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
      if constexpr (kStream) {
        hn::Stream(a, d, to);
        hn::Stream(b, d, to + kWidth);
        hn::Stream(c, d, to + 2 * kWidth);
        hn::Stream(e, d, to + 3 * kWidth);
      } else {
        hn::StoreU(a, d, to);
        hn::StoreU(b, d, to + kWidth);
        hn::StoreU(c, d, to + 2 * kWidth);
        hn::StoreU(e, d, to + 3 * kWidth);
      }
    }
  }

  HWY_INLINE void element(std::size_t i) const {
    const hn::CappedTag<T, 1> d;
    const auto value = op_.end(d, tree<kSources>(d, op_, from_, i));
    for (std::size_t t = 0; t < to_.size(); ++t) hn::StoreU(value, d, target(t) + i);
  }

  Op op_;
  const T* from_[kSources];
  std::span<std::byte* const> to_;
  std::size_t at_, count_;
  bool stream_ = false;
};

template <class T, class Op>
void with_sources(const Combination& c, const Op& op) {
  switch (c.from.size()) {
    case 1:
      return Pass<1, T, Op>(c, op).run();
    case 2:
      return Pass<2, T, Op>(c, op).run();
    case 3:
      return Pass<3, T, Op>(c, op).run();
    default:
      return Pass<4, T, Op>(c, op).run();
  }
}

template <class T>
void with_type(const Combination& c) {
  if (c.op == ReduceOp::kMin) return with_sources<T>(c, Extreme<T, false>());
  if (c.op == ReduceOp::kMax) return with_sources<T>(c, Extreme<T, true>());
  if constexpr (std::is_floating_point_v<T>) {
    if (c.scale != 1) {
      ScaledSum<T> op;
      op.scale = T(c.scale);
      return with_sources<T>(c, op);
    }
  }
  with_sources<T>(c, Sum<T>());
}

void CombineInRegisters(const Combination& c) {
  switch (c.dtype) {
    case DType::kFloat32:
      return with_type<float>(c);
    case DType::kFloat64:
      return with_type<double>(c);
    case DType::kInt32:
      return with_type<std::int32_t>(c);
    case DType::kInt64:
      return with_type<std::int64_t>(c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(CombineInRegisters);

namespace {

constexpr std::size_t kInRegisters = 4;  // sources

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
  for (std::size_t at = 0; at < whole.count; at += kBlock) {
    Combination part{.dtype = whole.dtype, .op = whole.op};
    part.count = std::min(kBlock, whole.count - at);
    part.read_at = whole.read_at + at;
    part.from = whole.from.first(half), part.to = to_left;
    combine(part);
    part.from = whole.from.subspan(half), part.to = to_right;
    combine(part);
    part.read_at = 0, part.write_at = whole.write_at + at;
    part.from = both, part.to = whole.to;
    part.scale = whole.scale, part.stream = whole.stream;
    combine(part);
  }
}

}  // namespace

void combine(const Combination& c) {
  if (c.from.size() <= kInRegisters) return HWY_DYNAMIC_DISPATCH(CombineInRegisters)(c);
  combine_halves(c);
}

bool scales_in_registers(DType dtype, double scale) {
  return dtype == DType::kFloat64 || (dtype == DType::kFloat32 && double(float(scale)) == scale);
}

}  // namespace lockstep::engine::cpu
#endif
