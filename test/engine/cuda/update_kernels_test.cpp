// SPDX-License-Identifier: MIT
// Tests that the optimizer inside a reduction has the bits of the processor's for all rules, types,
// numbers of sources, and alignments.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/cpu_device.h"
#include "engine/cuda/kernels/reduce.cuh"
#include "engine/ops/ops.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/reduce_operands.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace update_kernels_test {

std::vector<UpdateRule> rules() {
  UpdateRule sgd, momentum, nesterov, adam, adamw, lars;
  momentum.momentum = nesterov.momentum = lars.momentum = 0.9;
  nesterov.nesterov = true;
  adam.kind = UpdateKind::kAdam, adamw.kind = UpdateKind::kAdamW, lars.kind = UpdateKind::kLars;
  std::vector<UpdateRule> all{sgd, momentum, nesterov, adam, adamw, lars};
  for (UpdateRule& rule : all) rule.weight_decay = 0.05, rule.epsilon = 1e-3;
  return all;
}

template <class T>
using Kept = std::conditional_t<sizeof(T) == 2, float, T>;

// Holds weights of type T, and the optimizer's state, which begins `skew` elements further past an
// aligned address. Some extra elements must not change.
template <class T>
struct Weights {
  std::size_t lead, skew, count;
  std::vector<T> own, copy;
  std::vector<Kept<T>> slots[2], master;

  Weights(std::size_t first, std::size_t further, std::size_t elements)
      : lead(first), skew(further), count(elements), copy(lead + skew + count + 1, T(55)) {
    const std::vector<double> numbers = random_numbers(count, 7);
    own.assign(lead + count + 1, T(33));
    master.assign(lead + skew + count + 1, Kept<T>(44));
    for (auto& slot : slots) slot.assign(master.size(), Kept<T>(0.25));
    for (std::size_t i = 0; i < count; ++i) {
      own[lead + i] = T(float(numbers[i]));
      master[lead + skew + i] = Kept<T>(float(numbers[i]));
    }
  }
  // Updates on the processor, with one call for each range of weights with the same decay.
  void update(Ops& ops, const UpdateTerms& terms, std::span<const std::byte* const> from) {
    std::size_t begin = 0;
    for (unsigned boundary = 0; boundary <= terms.boundary_count; ++boundary) {
      const std::size_t end = boundary < terms.boundary_count ? terms.boundaries[boundary] : count;
      std::byte* const to[] = {at(copy, skew % 2 + begin), at(own, begin)};
      std::vector<const std::byte*> sources(from.begin(), from.end());
      for (const std::byte*& source : sources) source += begin * sizeof(T);
      ReduceArguments a{.dtype = dtype_of<T>(), .from = sources, .to = to, .count = end - begin};
      a.epilogue = Epilogue::kUpdate, a.scale = terms.scale, a.update.rule = &terms.rule;
      a.update.state = terms.state, a.update.weight = at(own, begin),
      a.update.decays = terms.decays != (boundary % 2 == 1);
      a.update.local_rate = terms.local_rate,
      a.update.slots = {kept(slots[0], begin), kept(slots[1], begin)};
      a.update.master = sizeof(T) == 2 ? kept(master, begin) : nullptr;
      ops.reduce(a);
      begin = end;
    }
  }
  void update(UpdateTerms terms, std::span<const std::byte* const> from, bool by_any) {
    std::byte* const to[] = {at(copy, skew % 2), at(own)};
    terms.weight = sizeof(T) == 2 ? nullptr : at(own);
    terms.slots = {kept(slots[0]), kept(slots[1])};
    terms.master = sizeof(T) == 2 ? reinterpret_cast<float*>(kept(master)) : nullptr;
    if (by_any) {
      ReduceAny call{dtype_of<T>(),    dtype_of<T>(),  ReduceOp::kSum, Epilogue::kUpdate,
                     sources_of(from), targets_of(to), count};
      call.terms = terms;
      emulate({2, 1, 32}, [&] { run<float>(call); });
    } else if constexpr (sizeof(T) < sizeof(double)) {
      const ReduceUpdate call{sources_of(from), targets_of(to), count, terms};
      emulate({2, 1, 32}, [&] { run<T>(call); });
    }
  }
  void expect_same(const Weights& o) const {
    ASSERT_TRUE(same(own, o.own));
    ASSERT_TRUE(same(copy, o.copy));
    ASSERT_TRUE(same(master, o.master));
    for (int k = 0; k < 2; ++k) ASSERT_TRUE(same(slots[k], o.slots[k]));
  }

 private:
  std::byte* kept(std::vector<Kept<T>>& numbers, std::size_t further = 0) const {
    return reinterpret_cast<std::byte*>(numbers.data() + lead + skew + further);
  }
  std::byte* at(std::vector<T>& numbers, std::size_t further = 0) const {
    return reinterpret_cast<std::byte*>(numbers.data() + lead + further);
  }
};

template <class T>
T gradient(std::size_t source, std::size_t i) {
  return T(float(uniform(random_bits(3, source, i)[0]) - 0.5));
}

// Calls body(terms, sources, count, lead, skew) for all rules, and cycles the other variants.
void each_way(auto body) {
  std::size_t turn = 0;
  for (const UpdateRule& rule : rules())
    for (const std::size_t sources : {1u, 2u, 3u, 4u, 8u, 11u})
      for (const std::size_t count : {0u, 1u, 15u, 100u}) {
        UpdateTerms terms;
        terms.rule = rule, terms.scale = 0.7, terms.local_rate = 0.3;
        terms.decays = ++turn % 5 < 3;
        if (turn % 2 == 0) {
          for (const std::size_t at : {1u, 6u, 7u, 13u, 64u, 65u, 99u})
            if (at < count) terms.boundaries[terms.boundary_count++] = at;
        }
        const std::size_t lead = turn % 4, skew = turn % 3;
        SCOPED_TRACE(testing::Message() << "rule " << int(rule.kind) << ", momentum "
                                        << rule.momentum << ", " << sources << " sources, " << count
                                        << " weights, lead " << lead << ", skew " << skew);
        body(terms, sources, count, lead, skew);
        if (testing::Test::HasFatalFailure()) return;
      }
}

template <class T>
void like_the_processor(bool by_any) {
  const auto device = cpu_device();
  const auto ops = device->ops(DType::kFloat32, {});
  each_way([&](UpdateTerms terms, std::size_t sources, std::size_t count, std::size_t lead,
               std::size_t skew) {
    Weights<T> expected(lead, skew, count), weights(lead, skew, count);
    for (int step = 0; step < 3; ++step) {
      StepState state;
      state.step = step, state.rate = 0.1 / (step + 1);
      terms.state = &state;
      Arrays<T> arrays(sources, count, lead, gradient<T>);
      const std::vector<const std::byte*> from = arrays.from();
      expected.update(*ops, terms, from);
      weights.update(terms, from, by_any);
      ASSERT_NO_FATAL_FAILURE(weights.expect_same(expected));
    }
  });
}

TEST(UpdateKernels, HaveTheBitsOfTheProcessor) {
  like_the_processor<float>(false);
  like_the_processor<BFloat16>(false);
}

TEST(UpdateKernels, OfAnyTypeHaveTheBitsOfTheProcessor) {
  like_the_processor<float>(true);
  like_the_processor<double>(true);
  like_the_processor<BFloat16>(true);
}

// The processor has no float16 updates. The masters must equal the weights of a float32 update with
// the same gradients.
TEST(UpdateKernels, OfFloat16MoveTheirMastersAsFloat32Moves) {
  for (const bool by_any : {false, true}) {
    each_way([&](UpdateTerms terms, std::size_t sources, std::size_t count, std::size_t lead,
                 std::size_t skew) {
      StepState state;
      state.rate = 0.1;
      terms.state = &state;
      Weights<Half> weights(lead, skew, count);
      Weights<float> expected(lead, skew, count);
      Arrays<Half> narrow(sources, count, lead, gradient<Half>);
      Arrays<float> wide(sources, count, lead,
                         [](std::size_t s, std::size_t i) { return float(gradient<Half>(s, i)); });
      weights.update(terms, narrow.from(), by_any);
      expected.update(terms, wide.from(), by_any);
      ASSERT_TRUE(same(weights.slots[0], expected.slots[0]));
      for (std::size_t i = 0; i < count; ++i) {
        const float weight = expected.own[lead + i];
        ASSERT_EQ(weights.master[lead + skew + i], weight);
        ASSERT_EQ(weights.own[lead + i].bits, Half(weight).bits);
      }
      ASSERT_EQ(float(weights.own[lead + count]), 33);
      ASSERT_EQ(weights.master[lead + skew + count], 44);
    });
  }
}

// Adam's divisor has the processor's bits at every step. It uses powers of a number near 1, whose
// last bit differs in a GPU's own function.
TEST(UpdateKernels, PowersAreThoseOfTheHost) {
  for (const double base : {0.9, 0.95, 0.98, 0.999, 0.9999, 0.5, 0.0})
    for (std::uint64_t t = 1; t < 3'000'000; t += 1 + t / 50) {
      const double power = cuda::power(base, t), expected = std::pow(base, double(t));
      ASSERT_NEAR(power, expected, 0x1p-52 * expected + 1e-300) << base << " to the " << t;
      ASSERT_EQ(float(1 / (1 - power)), float(1 / (1 - expected))) << base << " to the " << t;
    }
}

}  // namespace update_kernels_test
}  // namespace lockstep::engine::cuda
