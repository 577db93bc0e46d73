// SPDX-License-Identifier: MIT
// Tests that the update factors have the bits of the host's, and that updates apply them.
#include "engine/cuda/kernels/factors.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/cuda/kernels/reduce.cuh"
#include "engine/device/buffer.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/reduce_operands.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine::cuda {
namespace factors_kernels_test {

// Runs the host and the kernel with the same memory and squares.
class Both {
 public:
  Both(const UpdateRule& rule, std::vector<double> squares, std::vector<UpdateSegment> segments)
      : rule_(rule), squares_(std::move(squares)), segments_(segments.size()) {
    for (Buffer& buffer : buffers_) {
      buffer = Buffer(UpdateMemory::bytes(segments_));
      UpdateMemory::in(buffer.data(), segments_).begin(rule, segments);
    }
  }
  // Compares four steps, one of them with a square of `wrong` somewhere.
  void expect_same(double wrong) {
    for (int step = 0; step < 4; ++step) {
      StepState state;
      state.step = 5 + step, state.loss_scale = 24;
      std::vector<double> squares = squares_;
      if (step == 1 && !squares.empty()) squares[squares.size() * 2 / 3] = wrong;
      const std::size_t blocks = squares.size();
      find_factors({&rule_, &state, squares.data(), blocks, segments_, memory(0)});
      const FindFactors call{rule_, &state, squares.data(), blocks, segments_, memory(1)};
      emulate({1, 1, FindFactors::kThreads}, [&] { run<float>(call); });
      expect_same_memory(step);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  void expect_same_memory(int step) const {
    const UpdateMemory there = memory(0), here = memory(1);
    ASSERT_TRUE(same(here.factors->scale, there.factors->scale)) << "step " << step;
    ASSERT_EQ(here.factors->updates, there.factors->updates) << "step " << step;
    ASSERT_EQ(here.factors->skipped, there.factors->skipped) << "step " << step;
    ASSERT_EQ(*here.loss_scale, *there.loss_scale) << "step " << step;
    for (std::size_t s = 0; s < segments_; ++s)
      ASSERT_TRUE(same(here.local_rates[s], there.local_rates[s])) << "step " << step;
  }
  static bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
  UpdateMemory memory(int of) const { return UpdateMemory::in(buffers_[of].data(), segments_); }
  UpdateRule rule_;
  std::vector<double> squares_;
  std::size_t segments_;
  Buffer buffers_[2];
};

std::vector<double> squares(std::size_t count) {
  std::vector<double> numbers = random_numbers(count, 11);
  for (std::size_t i = 0; i < count; ++i) numbers[i] *= numbers[i] * std::exp(double(i % 40));
  return numbers;
}

const double kWrong[] = {1, 0, std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::quiet_NaN()};

TEST(FactorsKernels, OfAGlobalNormHaveTheBitsOfTheHost) {
  for (const bool dynamic : {false, true})
    for (const std::size_t blocks : {0u, 1u, 31u, 2048u, 2049u, 7000u})
      for (const double wrong : kWrong) {
        UpdateRule rule;
        rule.clip_norm = 0.3;
        rule.scaling = {.dynamic = dynamic, .start = 3e4, .growth_interval = 2};
        Both(rule, squares(blocks), {}).expect_same(wrong);
      }
}

TEST(FactorsKernels, OfFinitenessHaveTheBitsOfTheHost) {
  for (const std::size_t blocks : {0u, 1u, 31u, 300u, 7000u})
    for (const double wrong : kWrong) {
      UpdateRule rule;
      rule.scaling = {.dynamic = true, .start = 4096, .growth_interval = 2};
      Both(rule, squares(blocks), {}).expect_same(wrong);
    }
}

TEST(FactorsKernels, OfLayersHaveTheBitsOfTheHost) {
  UpdateRule rule;
  rule.kind = UpdateKind::kLars, rule.weight_decay = 1e-4, rule.epsilon = 1e-9;
  for (const bool dynamic : {false, true})
    for (const std::size_t count : {1u, 7u, 300u})
      for (const double wrong : kWrong) {
        rule.scaling = {.dynamic = dynamic, .start = 96, .growth_interval = 3};
        std::vector<UpdateSegment> segments;
        for (std::size_t s = 0, end = 0; s < count; ++s)
          segments.push_back({end += 1 + s * 977 % 5000, true, s % 3 != 0});
        const std::size_t blocks = segments.back().end / kBlock + 1;
        Both(rule, squares(2 * (blocks + count)), segments).expect_same(wrong);
      }
}

template <class T>
T gradient(std::size_t source, std::size_t i) {
  return T(float(uniform(random_bits(3, source, i)[0]) - 0.5));
}

// Returns the results of one call, with or without factors.
template <class T>
std::vector<float> updated(UpdateTerms terms, bool by_any) {
  constexpr std::size_t kCount = 70;
  std::vector<T> weights(kCount, T(2.0f));
  std::vector<float> slots[2] = {std::vector<float>(kCount, 0.25f),
                                 std::vector<float>(kCount, 0.5f)};
  std::vector<float> master(kCount, 2);
  Arrays<T> arrays(2, kCount, 0, gradient<T>);
  const std::vector<const std::byte*> from = arrays.from();
  std::byte* const to[] = {reinterpret_cast<std::byte*>(weights.data())};
  terms.weight = sizeof(T) == 2 ? nullptr : weights.data();
  terms.slots = {slots[0].data(), slots[1].data()};
  terms.master = sizeof(T) == 2 ? master.data() : nullptr;
  if (by_any) {
    ReduceAny call{dtype_of<T>(),    dtype_of<T>(),  ReduceOp::kSum, Epilogue::kUpdate,
                   sources_of(from), targets_of(to), kCount};
    call.terms = terms;
    emulate({2, 1, 32}, [&] { run<float>(call); });
  } else {
    const ReduceUpdate call{sources_of(from), targets_of(to), kCount, terms};
    emulate({2, 1, 32}, [&] { run<T>(call); });
  }
  std::vector<float> all = master;
  for (const T weight : weights) all.push_back(float(weight));
  for (const auto& slot : slots) all.insert(all.end(), slot.begin(), slot.end());
  return all;
}

template <class T>
void obeyed() {
  for (const bool by_any : {false, true})
    for (const UpdateKind kind : {UpdateKind::kSgd, UpdateKind::kAdam, UpdateKind::kLars}) {
      StepState state, plain;
      state.step = 9, state.rate = plain.rate = 0.1, state.loss_scale = 77;
      plain.step = 4, plain.loss_scale = 4;
      const double rate = 0.3;
      UpdateFactors factors{.scale = 0.25, .updates = 4};
      UpdateTerms terms, wanted;
      terms.rule.kind = wanted.rule.kind = kind;
      terms.rule.momentum = wanted.rule.momentum = 0.9;
      terms.state = &state, wanted.state = &plain;
      terms.scale = terms.local_rate = 1000;
      terms.factors = &factors, terms.found_rate = &rate;
      wanted.local_rate = rate;
      const std::vector<float> found = updated<T>(terms, by_any);
      EXPECT_EQ(found, updated<T>(wanted, by_any));
      factors.skipped = true;
      const std::vector<float> nothing = updated<T>(terms, by_any);
      EXPECT_NE(nothing, found);
      for (std::size_t i = 0; i < nothing.size(); ++i)
        ASSERT_EQ(nothing[i], i < 140 ? 2.0f : i < 210 ? 0.25f : 0.5f) << i;
    }
}

TEST(FactorsKernels, AreObeyedByUpdates) {
  obeyed<float>();
  obeyed<BFloat16>();
  obeyed<Half>();
}

}  // namespace factors_kernels_test
}  // namespace lockstep::engine::cuda
