// SPDX-License-Identifier: MIT
// There is one loop per rule and type. Memory is the limit, not arithmetic, so the number of
// gradients is a branch in it.
//
// A call prefetches lines: gradients for reading, slots and weights for writing, so that no line
// moves twice. Other ranks' weights are not read. If they do not stay in a cache anyway, a plain
// store would fetch each line from memory only to overwrite it; `stream` avoids that.
#include "engine/cpu/update_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/update_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "engine/base/error.h"
#include "engine/cpu/groups-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Slots = std::array<T*, UpdateRule::kMaxSlots>;

// Each rule computes a new weight from a sum of gradients and an old weight, and updates its slots.
template <class T>
struct Plain {
  static constexpr std::size_t kSlots = 0;
  T scale, rate, decay;
  explicit Plain(const UpdateTerms& t) : scale(T(t.scale)), rate(T(t.rate)), decay(T(t.decay)) {}
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
  explicit Momentum(const UpdateTerms& t)
      : scale(T(t.scale)),
        rate(T(t.rate)),
        decay(T(t.decay)),
        momentum(T(t.momentum)),
        of_gradient(T(t.of_gradient)),
        of_velocity(T(t.of_velocity)) {}
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
  explicit Adam(const UpdateTerms& t)
      : scale(T(t.scale)),
        epsilon(T(t.epsilon)),
        beta1(T(t.beta1)),
        beta2(T(t.beta2)),
        rest1(T(t.rest1)),
        rest2(T(t.rest2)),
        decay(T(t.decay)),
        shrink(T(t.shrink)),
        rate(T(t.rate)),
        correct2(T(t.correct2)) {}
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
  explicit Lars(const UpdateTerms& t)
      : scale(T(t.scale)), rate(T(t.rate)), decay(T(t.decay)), momentum(T(t.momentum)) {}
  template <class D, class V>
  HWY_INLINE V next(D d, V sum, V w, const Slots<T>& slots, std::size_t i) const {
    const V g = hn::Add(hn::Mul(hn::Set(d, scale), sum), hn::Mul(hn::Set(d, decay), w));
    const V v = hn::Add(hn::Mul(hn::Set(d, momentum), hn::LoadU(d, slots[0] + i)),
                        hn::Mul(hn::Set(d, rate), g));
    hn::StoreU(v, d, slots[0] + i);
    return hn::Sub(w, v);
  }
};

// Runs a rule over whole groups. In: type of the gradients; Out: type of the weights.
template <class In, class Out, class Rule>
class Pass {
 public:
  explicit Pass(const UpdateGroups& g)
      : rule_(g.terms),
        sources_(g.sources),
        weight_(reinterpret_cast<const Out*>(g.weight)),
        master_(reinterpret_cast<T*>(g.master)),
        targets_(g.targets),
        count_(g.groups * kGroupBytes / sizeof(T)) {
    for (std::size_t s = 0; s < 4; ++s) from_[s] = reinterpret_cast<const In*>(g.from[s]);
    for (std::size_t s = 0; s < Rule::kSlots; ++s) slots_[s] = reinterpret_cast<T*>(g.slots[s]);
  }

  HWY_INLINE void run() const {
    for (std::size_t at = 0; at < std::min(kAhead, count_); at += kInLine) ask(at);
    const std::size_t end = count_ >= kAhead + kStep ? count_ - kAhead - kStep + 1 : 0;
    for (std::size_t i = 0; i < count_; i += kStep) {
      if (i < end)
        for (std::size_t at = 0; at < kStep; at += kInLine) ask(i + kAhead + at);
      store_four<Out, true>(Lanes(), next(i), targets_, i);
    }
    if (targets_.stream) hwy::FlushStream();
  }

 private:
  using T = Computed<Out>;
  static constexpr bool kMaster = kNarrow<Out>;
  using Lanes = GroupLanes<T>;
  static constexpr std::size_t kWidth = hn::MaxLanes(Lanes()), kStep = 4 * kWidth;
  static constexpr std::size_t kInLine = kLine / sizeof(T), kAhead = 4096 / sizeof(T);  // elements

  HWY_INLINE void ask(std::size_t i) const {
    for (std::size_t s = 0; s < sources_; ++s) __builtin_prefetch(from_[s] + i, 0);
    for (std::size_t s = 0; s < Rule::kSlots; ++s) __builtin_prefetch(slots_[s] + i, 1);
    __builtin_prefetch(weight_ + i, 1);
    if constexpr (kMaster) __builtin_prefetch(master_ + i, 1);
    for (std::size_t t = 0; !targets_.stream && t < targets_.to.size(); ++t)
      if (targets_.at(t) != targets_.own) __builtin_prefetch(targets_.at(t) + i * sizeof(Out), 1);
  }

  // Adds up to four gradients as a balanced tree.
  HWY_INLINE Four<Lanes> sum(std::size_t i) const {
    const Lanes d;
    auto all = load_four(d, from_[0], i);
    if (sources_ > 1) all = join_four(d, Sum(), all, load_four(d, from_[1], i));
    if (sources_ > 2) {
      auto rest = load_four(d, from_[2], i);
      if (sources_ > 3) rest = join_four(d, Sum(), rest, load_four(d, from_[3], i));
      all = join_four(d, Sum(), all, rest);
    }
    return all;
  }

  HWY_INLINE Four<Lanes> next(std::size_t i) const {
    const Lanes d;
    Four<Lanes> old;
    if constexpr (kMaster) {
      old = load_four(d, master_, i);
    } else {
      old = load_four(d, weight_, i);
    }
    const Four<Lanes> g = sum(i);
    const Four<Lanes> value = {rule_.next(d, g.a, old.a, slots_, i),
                               rule_.next(d, g.b, old.b, slots_, i + kWidth),
                               rule_.next(d, g.c, old.c, slots_, i + 2 * kWidth),
                               rule_.next(d, g.e, old.e, slots_, i + 3 * kWidth)};
    if constexpr (kMaster) {
      hn::StoreU(value.a, d, master_ + i);
      hn::StoreU(value.b, d, master_ + i + kWidth);
      hn::StoreU(value.c, d, master_ + i + 2 * kWidth);
      hn::StoreU(value.e, d, master_ + i + 3 * kWidth);
    }
    return value;
  }

  Rule rule_;
  const In* from_[4];
  std::size_t sources_;
  const Out* weight_;
  T* master_;
  Slots<T> slots_{};
  Targets targets_;
  std::size_t count_;
};

template <class In, class Out>
void with_types(const UpdateGroups& g) {
  using T = Computed<Out>;
  switch (g.formula) {
    case UpdateFormula::kPlain:
      return Pass<In, Out, Plain<T>>(g).run();
    case UpdateFormula::kMomentum:
      return Pass<In, Out, Momentum<T>>(g).run();
    case UpdateFormula::kAdam:
      return Pass<In, Out, Adam<T>>(g).run();
    case UpdateFormula::kLars:
      return Pass<In, Out, Lars<T>>(g).run();
  }
}

void Update(const UpdateGroups& g) {
  switch (g.dtype) {
    case DType::kFloat32:
      return with_types<float, float>(g);
    case DType::kFloat64:
      return with_types<double, double>(g);
    case DType::kBFloat16:
      return g.added ? with_types<float, BFloat16>(g) : with_types<BFloat16, BFloat16>(g);
    default:
      broken("an update of float16, or of integers");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(Update);

void update_groups(const UpdateGroups& groups) {
  HWY_DYNAMIC_DISPATCH(Update)(groups);
}

}  // namespace lockstep::engine::cpu
#endif
