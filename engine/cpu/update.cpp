// SPDX-License-Identifier: MIT
// Four vectors at a time, so that as many loads are under way as the core can wait for: what is far
// from the core is the limit, not the arithmetic. Up to four gradients are added in registers; more
// are added block by block in memory that stays in the first cache.
//
// A call asks for lines some way ahead: gradients to be read, slots and weights to be written, so
// that no line moves twice. Other ranks' weights are not read. Where they do not stay in a cache
// anyway, a plain store would fetch each line from memory to write all of it: `stream` saves that.
//
// Weights of bfloat16 have masters in float32: all arithmetic is on these, and what is stored into
// the targets is the new master, rounded.
#include "engine/cpu/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/update.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "engine/base/error.h"
#include "engine/cpu/combine.h"
#include "engine/cpu/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Slots = std::array<T*, UpdateRule::kMaxSlots>;

inline double decay_of(const ReduceArguments& a) {
  return a.decays ? a.rule->weight_decay : 0.0;
}

// Each rule makes a new weight of a sum of gradients and an old weight, and moves its slots. What
// does not depend on the element is computed first, in double precision.
template <class T>
struct Plain {
  static constexpr std::size_t kSlots = 0;
  T scale, rate, decay;
  explicit Plain(const ReduceArguments& a)
      : scale(T(gradient_scale(a))), rate(T(a.state->rate)), decay(T(decay_of(a))) {}
  template <class D, class V>
  HWY_INLINE V next(D d, V sum, V w, const Slots<T>&, std::size_t) const {
    const V g = hn::Add(hn::Mul(hn::Set(d, scale), sum), hn::Mul(hn::Set(d, decay), w));
    return hn::Sub(w, hn::Mul(hn::Set(d, rate), g));
  }
};

template <class T>
struct Momentum {
  static constexpr std::size_t kSlots = 1;
  T scale, rate, decay, momentum, of_gradient, of_velocity;
  explicit Momentum(const ReduceArguments& a)
      : scale(T(gradient_scale(a))),
        rate(T(a.state->rate)),
        decay(T(decay_of(a))),
        momentum(T(a.rule->momentum)),
        of_gradient(a.rule->nesterov ? T(1) : T(0)),
        of_velocity(a.rule->nesterov ? momentum : T(1)) {}
  template <class D, class V>
  HWY_INLINE V next(D d, V sum, V w, const Slots<T>& slots, std::size_t i) const {
    const V g = hn::Add(hn::Mul(hn::Set(d, scale), sum), hn::Mul(hn::Set(d, decay), w));
    const V v = hn::Add(hn::Mul(hn::Set(d, momentum), hn::LoadU(d, slots[0] + i)), g);
    hn::StoreU(v, d, slots[0] + i);
    const V move =
        hn::Add(hn::Mul(hn::Set(d, of_gradient), g), hn::Mul(hn::Set(d, of_velocity), v));
    return hn::Sub(w, hn::Mul(hn::Set(d, rate), move));
  }
};

template <class T>
struct Adam {
  static constexpr std::size_t kSlots = 2;
  T scale, epsilon, beta1, beta2, rest1, rest2, decay, shrink, rate, correct2;
  explicit Adam(const ReduceArguments& a) {
    const UpdateRule& rule = *a.rule;
    const double t = double(updates_before(a)) + 1;
    const bool apart = rule.kind == UpdateKind::kAdamW;
    scale = T(gradient_scale(a)), epsilon = T(rule.epsilon);
    beta1 = T(rule.beta1), beta2 = T(rule.beta2);
    rest1 = T(1 - rule.beta1), rest2 = T(1 - rule.beta2);
    decay = apart ? T(0) : T(decay_of(a));
    shrink = apart ? T(a.state->rate * decay_of(a)) : T(0);
    rate = T(a.state->rate / (1 - std::pow(rule.beta1, t)));
    correct2 = T(1 / (1 - std::pow(rule.beta2, t)));
  }
  template <class D, class V>
  HWY_INLINE V next(D d, V sum, V w, const Slots<T>& slots, std::size_t i) const {
    const V g = hn::Add(hn::Mul(hn::Set(d, scale), sum), hn::Mul(hn::Set(d, decay), w));
    const V m = hn::Add(hn::Mul(hn::Set(d, beta1), hn::LoadU(d, slots[0] + i)),
                        hn::Mul(hn::Set(d, rest1), g));
    const V v = hn::Add(hn::Mul(hn::Set(d, beta2), hn::LoadU(d, slots[1] + i)),
                        hn::Mul(hn::Mul(hn::Set(d, rest2), g), g));
    hn::StoreU(m, d, slots[0] + i);
    hn::StoreU(v, d, slots[1] + i);
    const V root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, correct2))), hn::Set(d, epsilon));
    const V kept = hn::Sub(w, hn::Mul(hn::Set(d, shrink), w));
    return hn::Sub(kept, hn::Div(hn::Mul(hn::Set(d, rate), m), root));
  }
};

template <class T>
struct Lars {
  static constexpr std::size_t kSlots = 1;
  T scale, rate, decay, momentum;
  explicit Lars(const ReduceArguments& a)
      : scale(T(gradient_scale(a))),
        rate(T(a.state->rate * local_rate_of(a))),
        decay(T(decay_of(a))),
        momentum(T(a.rule->momentum)) {}
  template <class D, class V>
  HWY_INLINE V next(D d, V sum, V w, const Slots<T>& slots, std::size_t i) const {
    const V g = hn::Add(hn::Mul(hn::Set(d, scale), sum), hn::Mul(hn::Set(d, decay), w));
    const V v = hn::Add(hn::Mul(hn::Set(d, momentum), hn::LoadU(d, slots[0] + i)),
                        hn::Mul(hn::Set(d, rate), g));
    hn::StoreU(v, d, slots[0] + i);
    return hn::Sub(w, v);
  }
};

// The balanced tree over elements i, i + 1, ... of `from`.
template <std::size_t kSources, class D, class In>
HWY_INLINE hn::Vec<D> sum_of(D d, const In* const* from, std::size_t i) {
  if constexpr (kSources == 1) {
    return load(d, from[0] + i);
  } else {
    constexpr std::size_t kHalf = (kSources + 1) / 2;
    return hn::Add(sum_of<kHalf>(d, from, i), sum_of<kSources - kHalf>(d, from + kHalf, i));
  }
}

// In: of the gradients; Out: of the weights.
template <std::size_t kSources, class In, class Out, class Rule>
class Pass {
 public:
  Pass(const ReduceArguments& a, const UpdatePiece& piece)
      : rule_(a),
        weight_(reinterpret_cast<const Out*>(a.weight) + piece.at),
        to_(a.to),
        at_(piece.at),
        count_(piece.count) {
    if constexpr (kMaster) master_ = reinterpret_cast<T*>(a.master) + at_;
    for (std::size_t s = 0; s < kSources; ++s)
      from_[s] = reinterpret_cast<const In*>(piece.from[s]);
    for (std::size_t s = 0; s < Rule::kSlots; ++s)
      slots_[s] = reinterpret_cast<T*>(a.slots[s]) + at_;
    if (a.stream) find_lead();
  }

  HWY_INLINE void run() const {
    const bool stream = lead_ < kLine;
    std::size_t i = 0;
    if (stream)
      for (; i < std::min(lead_, count_); ++i) one<hn::CappedTag<T, 1>>(i);
    for (std::size_t at = i; at < std::min(i + kAhead, count_); at += kLine / sizeof(T))
      ask(at, !stream);
    const auto all = [&](auto kind) {
      for (; i + 4 * kWidth <= count_; i += 4 * kWidth) {
        if (i + 4 * kWidth + kAhead <= count_)
          for (std::size_t at = 0; at < 4 * kWidth; at += kLine / sizeof(T))
            ask(i + kAhead + at, !stream);
        four<kind()>(i);
      }
    };
    if (stream) {
      all(std::true_type());
      hwy::FlushStream();
    } else {
      all(std::false_type());
    }
    for (; i + kWidth <= count_; i += kWidth) one<Lanes>(i);
    for (; i < count_; ++i) one<hn::CappedTag<T, 1>>(i);
  }

 private:
  using T = Computed<Out>;
  static constexpr bool kMaster = kNarrow<Out>;
  static constexpr std::size_t kLine = 64;
  using Lanes = hn::CappedTag<T, kLine / sizeof(T)>;
  static constexpr std::size_t kWidth = hn::MaxLanes(Lanes());
  static constexpr std::size_t kAhead = 4096 / sizeof(T);  // elements

  Out* target(std::size_t t) const { return reinterpret_cast<Out*>(to_[t]) + at_; }
  bool is_own(std::size_t t) const { return target(t) == weight_; }

  HWY_INLINE void ask(std::size_t i, bool targets) const {
    for (std::size_t s = 0; s < kSources; ++s) __builtin_prefetch(from_[s] + i, 0);
    for (std::size_t s = 0; s < Rule::kSlots; ++s) __builtin_prefetch(slots_[s] + i, 1);
    __builtin_prefetch(weight_ + i, 1);
    if constexpr (kMaster) __builtin_prefetch(master_ + i, 1);
    for (std::size_t t = 0; targets && t < to_.size(); ++t)
      if (!is_own(t)) __builtin_prefetch(target(t) + i, 1);
  }

  // So many elements before the targets of others reach the border of a cache line; none where
  // there are none, or where they reach it at different elements.
  void find_lead() {
    std::size_t place = kLine;
    for (std::size_t t = 0; t < to_.size(); ++t) {
      if (is_own(t)) continue;
      const std::size_t mine = reinterpret_cast<std::uintptr_t>(target(t)) % kLine;
      if (mine % sizeof(Out) != 0 || (place != kLine && mine != place)) return;
      place = mine;
    }
    if (place != kLine) lead_ = (kLine - place) % kLine / sizeof(Out);
  }

  template <class D>
  HWY_INLINE hn::Vec<D> next(D d, std::size_t i) const {
    hn::Vec<D> old;
    if constexpr (kMaster) {
      old = hn::LoadU(d, master_ + i);
    } else {
      old = hn::LoadU(d, weight_ + i);
    }
    const auto value = rule_.next(d, sum_of<kSources>(d, from_, i), old, slots_, i);
    if constexpr (kMaster) hn::StoreU(value, d, master_ + i);
    return value;
  }

  template <bool kStream>
  HWY_INLINE void four(std::size_t i) const {
    const Lanes d;
    const auto a = next(d, i);
    const auto b = next(d, i + kWidth);
    const auto c = next(d, i + 2 * kWidth);
    const auto e = next(d, i + 3 * kWidth);
    for (std::size_t t = 0; t < to_.size(); ++t) {
      Out* const to = target(t) + i;
      if (kStream && !is_own(t)) {
        store_two<true>(d, a, b, to);
        store_two<true>(d, c, e, to + 2 * kWidth);
      } else {
        store_two<false>(d, a, b, to);
        store_two<false>(d, c, e, to + 2 * kWidth);
      }
    }
  }

  template <class D>
  HWY_INLINE void one(std::size_t i) const {
    const D d;
    const auto value = next(d, i);
    for (std::size_t t = 0; t < to_.size(); ++t) store_one(d, value, target(t) + i);
  }

  Rule rule_;
  const In* from_[kSources];
  const Out* weight_;
  T* master_ = nullptr;
  Slots<T> slots_{};
  std::span<std::byte* const> to_;
  std::size_t at_, count_;
  std::size_t lead_ = kLine;  // kLine: nothing is streamed
};

template <class Out, class Rule>
void with_rule(const ReduceArguments& a, const UpdatePiece& piece) {
  if constexpr (kNarrow<Out>)
    if (piece.added) return Pass<1, float, Out, Rule>(a, piece).run();
  switch (piece.from.size()) {
    case 1:
      return Pass<1, Out, Out, Rule>(a, piece).run();
    case 2:
      return Pass<2, Out, Out, Rule>(a, piece).run();
    case 3:
      return Pass<3, Out, Out, Rule>(a, piece).run();
    default:
      return Pass<4, Out, Out, Rule>(a, piece).run();
  }
}

template <class Out>
void with_type(const ReduceArguments& a, const UpdatePiece& piece) {
  using T = Computed<Out>;
  if (a.rule->kind == UpdateKind::kLars) return with_rule<Out, Lars<T>>(a, piece);
  if (a.rule->kind != UpdateKind::kSgd) return with_rule<Out, Adam<T>>(a, piece);
  a.rule->momentum != 0 ? with_rule<Out, Momentum<T>>(a, piece)
                        : with_rule<Out, Plain<T>>(a, piece);
}

void UpdateInRegisters(const ReduceArguments& a, const UpdatePiece& piece) {
  switch (a.dtype) {
    case DType::kFloat32:
      return with_type<float>(a, piece);
    case DType::kFloat64:
      return with_type<double>(a, piece);
    case DType::kBFloat16:
      return with_type<BFloat16>(a, piece);
    default:
      broken("an update of float16, or of integers");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(UpdateInRegisters);

namespace {

constexpr std::size_t kMostInRegisters = 4;  // gradients

struct alignas(64) Block {
  std::array<std::byte, kBlock * sizeof(double)> bytes;
};

// More gradients than registers hold, block by block.
void update_blocks(const ReduceArguments& whole) {
  Block sums;
  std::byte* const to[] = {sums.bytes.data()};
  const std::byte* const from[] = {sums.bytes.data()};
  for (std::size_t at = 0; at < whole.count; at += kBlock) {
    const std::size_t count = std::min(kBlock, whole.count - at);
    combine({.source = whole.dtype,
             .target = computed_in(whole.dtype),
             .from = whole.from,
             .to = to,
             .read_at = at,
             .count = count});
    HWY_DYNAMIC_DISPATCH(UpdateInRegisters)
    (whole, {.from = from, .added = true, .at = at, .count = count});
  }
}

}  // namespace

void update(const ReduceArguments& arguments) {
  if (is_skipped(arguments)) return;
  if (arguments.from.size() > kMostInRegisters) return update_blocks(arguments);
  HWY_DYNAMIC_DISPATCH(UpdateInRegisters)
  (arguments, {.from = arguments.from, .at = 0, .count = arguments.count});
}

}  // namespace lockstep::engine::cpu
#endif
