// SPDX-License-Identifier: MIT
// Tests that an optimizer update inside a reduction has the bits of its formula (update_rule.h),
// evaluated in the type of the elements, operation by operation. A fused and a separate update are
// thus equal, for all slices, numbers of ranks, and instruction sets. Updates of bfloat16 use
// float32 masters, and each stored weight is its master, rounded once.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/cpu_device.h"
#include "engine/reference/reference_device.h"
#include "test/engine/ops/instruction_sets.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {
namespace update_test {

template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<T> values;
  for (const double number : random_numbers(count, seed)) values.push_back(T(number));
  return values;
}

template <class S>
using Computed = std::conditional_t<sizeof(S) == 2, float, S>;

template <class T>
struct Weight {
  T weight = 0, slots[2] = {0, 0};
};

// Returns the sum by the balanced tree.
template <class S>
Computed<S> sum(const std::vector<std::vector<S>>& gradients, std::size_t i, std::size_t first,
                std::size_t count) {
  if (count == 1) return gradients[first][i];
  const std::size_t half = (count + 1) / 2;
  return sum(gradients, i, first, half) + sum(gradients, i, first + half, count - half);
}

// Holds the terms that all weights of a call share.
struct Terms {
  double scale = 0.7, local_rate = 0.3;
  bool decays = true;
};

template <class T>
void step(const UpdateRule& rule, const StepState& state, const Terms& terms, T gradient,
          Weight<T>& w) {
  const double weight_decay = terms.decays ? rule.weight_decay : 0;
  const T scale = T(terms.scale), rate = T(state.rate), decay = T(weight_decay);
  if (rule.kind == UpdateKind::kLars) {
    const T g = scale * gradient + decay * w.weight;
    w.slots[0] = T(rule.momentum) * w.slots[0] + T(state.rate * terms.local_rate) * g;
    w.weight = w.weight - w.slots[0];
    return;
  }
  if (rule.kind == UpdateKind::kSgd) {
    const T g = scale * gradient + decay * w.weight;
    if (rule.momentum == 0) {
      w.weight = w.weight - rate * g;
      return;
    }
    const T momentum = T(rule.momentum);
    w.slots[0] = momentum * w.slots[0] + g;
    const T move = rule.nesterov ? g + momentum * w.slots[0] : w.slots[0];
    w.weight = w.weight - rate * move;
    return;
  }
  const bool apart = rule.kind == UpdateKind::kAdamW;
  const double t = double(state.step) + 1;
  const T g = apart ? scale * gradient : scale * gradient + decay * w.weight;
  w.slots[0] = T(rule.beta1) * w.slots[0] + T(1 - rule.beta1) * g;
  w.slots[1] = T(rule.beta2) * w.slots[1] + T(1 - rule.beta2) * g * g;
  const T kept = apart ? w.weight - T(state.rate * weight_decay) * w.weight : w.weight;
  const T root = std::sqrt(w.slots[1] * T(1 / (1 - std::pow(rule.beta2, t))));
  w.weight =
      kept - T(state.rate / (1 - std::pow(rule.beta1, t))) * w.slots[0] / (root + T(rule.epsilon));
}

// Takes three steps over `count` weights, into the weights themselves and two other places. Each
// place has an element before and after it that must not change.
template <class S>
class Steps {
 public:
  using T = Computed<S>;
  static constexpr bool kMaster = sizeof(S) == 2;
  Steps(const UpdateRule& rule, std::size_t sources, std::size_t count, std::size_t lead,
        std::size_t others, bool stream, bool decays)
      : rule_(rule),
        count_(count),
        lead_(lead),
        others_(others),
        stream_(stream),
        terms_{.decays = decays} {
    for (std::size_t s = 0; s < sources; ++s) gradients_.emplace_back();
    for (std::vector<S>& place : places_) place.assign(count + 40, S(55));
    const std::vector<T> start = numbers<T>(count, 7);
    // If there are masters, the previous weights are not read.
    for (std::size_t i = 0; i < count && !kMaster; ++i) places_[0][lead + i] = S(start[i]);
    master_ = start;
    master_.push_back(T(55));
    for (std::vector<T>& slot : slots_) slot.assign(count + 1, T(0));
    for (const T weight : start) expected_.push_back({.weight = weight});
  }

  void take(Ops& ops) {
    for (int k = 0; k < 3; ++k) {
      StepState state;
      state.step = k;
      state.rate = 0.1 / (k + 1);
      std::vector<const std::byte*> from;
      for (std::size_t s = 0; s < gradients_.size(); ++s) {
        gradients_[s] = numbers<S>(count_ + 1, 100 + 10 * s + std::uint64_t(k));
        from.push_back(bytes(gradients_[s].data()));
      }
      std::byte* to[] = {at(1, others_), at(0, lead_), at(2, others_)};
      ReduceArguments a;
      a.dtype = dtype_of<S>();
      a.from = from;
      a.to = to;
      a.count = count_;
      a.stream = stream_;
      a.epilogue = Epilogue::kUpdate;
      a.scale = terms_.scale;
      a.update.decays = terms_.decays;
      a.update.local_rate = terms_.local_rate;
      a.update.rule = &rule_;
      a.update.state = &state;
      a.update.weight = at(0, lead_);
      for (std::size_t s = 0; s < rule_.slots(); ++s)
        a.update.slots[s] = reinterpret_cast<std::byte*>(slots_[s].data());
      if (kMaster) a.update.master = reinterpret_cast<std::byte*>(master_.data());
      ops.reduce(a);
      for (std::size_t i = 0; i < count_; ++i)
        step<T>(rule_, state, terms_, sum(gradients_, i, 0, gradients_.size()), expected_[i]);
    }
  }

  void check() const {
    for (std::size_t i = 0; i < count_; ++i) {
      const Weight<T>& answer = expected_[i];
      if (kMaster) {
        ASSERT_EQ(master_[i], answer.weight) << "the master of weight " << i;
      }
      const T stored = T(S(answer.weight));
      ASSERT_EQ(T(places_[0][lead_ + i]), stored) << "its own weight " << i;
      ASSERT_EQ(T(places_[1][others_ + i]), stored) << "another's weight " << i;
      ASSERT_EQ(T(places_[2][others_ + i]), stored) << "another's weight " << i;
      for (std::size_t s = 0; s < rule_.slots(); ++s)
        ASSERT_EQ(slots_[s][i], answer.slots[s]) << "slot " << s << " of weight " << i;
    }
    for (std::size_t p = 0; p < 3; ++p) {
      const std::size_t lead = p == 0 ? lead_ : others_;
      ASSERT_EQ(T(places_[p][lead - 1]), T(55));
      ASSERT_EQ(T(places_[p][lead + count_]), T(55));
    }
    ASSERT_EQ(master_[count_], T(55));
    for (const std::vector<T>& slot : slots_) ASSERT_EQ(slot[count_], T(0));
  }

 private:
  static std::byte* bytes(S* data) { return reinterpret_cast<std::byte*>(data); }
  std::byte* at(std::size_t place, std::size_t lead) { return bytes(places_[place].data() + lead); }

  UpdateRule rule_;
  std::size_t count_, lead_, others_;  // before own weights; before those of others
  bool stream_;
  Terms terms_;
  std::vector<std::vector<S>> gradients_;
  std::vector<S> places_[3];
  std::vector<T> slots_[2], master_;
  std::vector<Weight<T>> expected_;
};

std::vector<UpdateRule> rules() {
  UpdateRule sgd, momentum, nesterov, adam, adamw, lars;
  momentum.momentum = nesterov.momentum = lars.momentum = 0.9;
  nesterov.nesterov = true;
  adam.kind = UpdateKind::kAdam, adamw.kind = UpdateKind::kAdamW, lars.kind = UpdateKind::kLars;
  std::vector<UpdateRule> all{sgd, momentum, nesterov, adam, adamw, lars};
  for (UpdateRule& rule : all) rule.weight_decay = 0.05, rule.epsilon = 1e-3;
  return all;
}

template <class S>
void all_ways(Ops& ops) {
  std::size_t turn = 0;  // cycles the alignments
  for (const UpdateRule& rule : rules())
    for (const std::size_t sources : {1u, 2u, 3u, 4u, 5u, 9u})
      for (const std::size_t count : {0u, 1u, 15u, 63u, 64u, 65u, 1024u, 2500u})
        for (const bool stream : {false, true}) {
          const std::size_t lead = 1 + ++turn % 17, others = turn % 3 == 0 ? lead + 5 : lead;
          const bool decays = turn % 5 < 3;
          SCOPED_TRACE(fmt::format(
              "rule {} with momentum {}, {} sources, {} weights, leads {} {}, stream {}, decays {}",
              int(rule.kind), rule.momentum, sources, count, lead, others, stream, decays));
          Steps<S> steps(rule, sources, count, lead, others, stream, decays);
          steps.take(ops);
          ASSERT_NO_FATAL_FAILURE(steps.check());
        }
}

TEST(Update, HasTheBitsOfItsFormulaByEveryInstructionSet) {
  const auto device = cpu_device();
  const auto ops = device->ops(DType::kFloat32, {});
  InstructionSets sets;
  for (const std::int64_t one_of_them : sets.all()) {
    SCOPED_TRACE(sets.use(one_of_them));
    ASSERT_NO_FATAL_FAILURE(all_ways<float>(*ops));
    ASSERT_NO_FATAL_FAILURE(all_ways<double>(*ops));
    ASSERT_NO_FATAL_FAILURE(all_ways<BFloat16>(*ops));
  }
}

// The oracle computes in double with float32 masters, so each step may differ from the processor by
// a float32 rounding. Rounding to bfloat16 can turn this into one bfloat16 step.
TEST(Update, OfBfloat16IsThatOfTheReferenceToTheLastBitOfFloat32) {
  const auto device = cpu_device();
  const auto ops = device->ops(DType::kBFloat16, {}), oracle = reference_ops(DType::kBFloat16);
  constexpr std::size_t kCount = 1500;
  for (const UpdateRule& rule : rules()) {
    SCOPED_TRACE(fmt::format("rule {} with momentum {}", int(rule.kind), rule.momentum));
    std::vector<std::vector<BFloat16>> gradients;
    std::vector<const std::byte*> from;
    for (std::uint64_t s = 0; s < 3; ++s) {
      gradients.push_back(numbers<BFloat16>(kCount, 20 + s));
      from.push_back(reinterpret_cast<const std::byte*>(gradients.back().data()));
    }
    StepState state;
    state.rate = 0.05;
    const auto updated = [&](Ops& by) {
      std::vector<float> master = numbers<float>(kCount, 7), slots[2];
      std::vector<BFloat16> weights(kCount);
      std::byte* to[] = {reinterpret_cast<std::byte*>(weights.data())};
      ReduceArguments a{.dtype = DType::kBFloat16, .from = from, .to = to, .count = kCount};
      a.epilogue = Epilogue::kUpdate;
      a.update.rule = &rule, a.update.state = &state, a.update.weight = to[0];
      a.update.master = reinterpret_cast<std::byte*>(master.data());
      for (std::size_t s = 0; s < 2; ++s) {
        slots[s].assign(kCount, 0.25f);
        a.update.slots[s] = reinterpret_cast<std::byte*>(slots[s].data());
      }
      by.reduce(a);
      for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_EQ(float(weights[i]), float(BFloat16(master[i]))) << i;
      for (std::size_t s = 0; s < 2; ++s)
        master.insert(master.end(), slots[s].begin(), slots[s].end());
      return master;
    };
    const std::vector<float> here = updated(*ops), there = updated(*oracle);
    for (std::size_t i = 0; i < here.size(); ++i)
      ASSERT_NEAR(here[i], there[i], 4e-7 * std::max(1.0f, std::abs(there[i]))) << i;
  }
}

}  // namespace update_test
}  // namespace lockstep::engine
