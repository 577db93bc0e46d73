// SPDX-License-Identifier: MIT
// Tests convolutions as matrix products with every instruction set of this machine, even if the
// device would not choose them. They agree with the reference at every edge of strips, panels, and
// parts, for one and several threads, and are deterministic.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "engine/cpu/cpu_device.h"
#include "engine/cpu/lowered.h"
#include "engine/reference/reference_device.h"
#include "test/engine/ops/conformance.h"
#include "test/engine/ops/instruction_sets.h"

namespace lockstep::engine {
namespace lowered_test {

struct Case {
  ConvolutionSpec spec;
  std::size_t rows = 0;
  bool accumulate = false, of_inputs = true, of_weights = true;
};

// Computes y, dx, dw, db of a case on `m`: by its operations if `library` is null, otherwise by the
// kernels.
Results results_of(Machine& m, const Case& c, cpu::Library* library) {
  const ConvolutionSpec& s = c.spec;
  const StepState state = state_of(c.rows);
  const Shape in{c.rows, s.height, s.width, s.channels};
  const Shape out{c.rows, s.output_height(), s.output_width(), s.filters};
  const Shape kernel{s.filters, s.kernel_height, s.kernel_width, s.channels};
  const Operand x = m.operand(in, random_numbers(in.elements(), 1)), dx = m.empty(in);
  const Operand w = m.operand(kernel, random_numbers(kernel.elements(), 2));
  const Operand b = m.operand({s.filters}, random_numbers(s.filters, 3));
  const Operand past = m.operand(out, random_numbers(out.elements(), 4)), y = m.empty(out);
  const Operand dy = m.operand(out, random_numbers(out.elements(), 5));
  const Operand dw = m.operand(kernel, random_numbers(kernel.elements(), 6));
  const Operand db = m.operand({s.filters}, random_numbers(s.filters, 7));
  const Tensor bias = s.bias ? b.tensor : Tensor{}, to_bias = s.bias ? db.tensor : Tensor{};
  const Tensor to_inputs = c.of_inputs ? dx.tensor : Tensor{};
  const Tensor to_weights = c.of_weights ? dw.tensor : Tensor{};
  if (library == nullptr) {
    m.ops().convolution_forward(&state, s, x.tensor, w.tensor, bias, y.tensor);
    m.ops().convolution_backward(&state, s, x.tensor, past.tensor, dy.tensor, w.tensor, to_inputs,
                                 to_weights, to_bias, c.accumulate);
  } else {
    const auto at = [](const Tensor& t) { return t.data == nullptr ? nullptr : t.as<float>(); };
    library->enter();
    cpu::lowered_forward(*library, s, c.rows, at(x.tensor), at(w.tensor), at(bias), at(y.tensor));
    cpu::lowered_backward(*library, s, c.rows, at(x.tensor), at(past.tensor), at(dy.tensor),
                          at(w.tensor), at(to_inputs), at(to_weights), at(to_bias), c.accumulate);
  }
  return {y.values(), dx.values(), dw.values(), db.values()};
}

// The columns are height, width, channels, filters, kernel height, kernel width, stride, padding,
// rows. The cases cover partial strips, panels of all widths, taps in the padding alone, and depths
// of several parts. Blocks have several images, and images have several blocks.
constexpr std::size_t kCases[][9] = {
    {1, 1, 16, 16, 1, 1, 1, 0, 1},   {5, 4, 16, 16, 1, 1, 1, 0, 3},
    {6, 7, 32, 48, 1, 1, 2, 0, 2},   {4, 4, 16, 80, 1, 1, 1, 1, 2},
    {9, 8, 16, 96, 3, 3, 2, 1, 3},   {9, 9, 48, 32, 5, 5, 2, 2, 2},
    {7, 6, 80, 16, 3, 2, 3, 1, 2},   {8, 9, 64, 64, 3, 3, 1, 1, 5},
    {3, 3, 16, 16, 3, 3, 1, 2, 4},   {3, 3, 272, 16, 1, 1, 1, 0, 2},
    {3, 3, 16, 272, 1, 1, 1, 0, 2},  {3, 4, 272, 288, 3, 3, 2, 1, 1},
    {24, 23, 32, 16, 1, 1, 1, 0, 2}, {31, 30, 16, 32, 3, 3, 2, 1, 3},
    {4, 3, 16, 832, 1, 1, 1, 0, 2},
};

TEST(Lowered, ConvolutionsByEverySetAreWhatTheReferenceGives) {
  const auto device = cpu_device(), oracle_device = reference_device();
  Machine machine(*device, DType::kFloat32, {.kernels = Kernels::kDirect});
  Machine oracle(*oracle_device, DType::kFloat64);
  InstructionSets sets;
  ASSERT_FALSE(sets.all().empty());
  int counter = 0;
  for (const auto& n : kCases) {
    for (int turn = 0; turn < 2; ++turn) {
      const int variant = ++counter;
      Case c{{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]}, n[8]};
      c.spec.bias = variant % 2 == 0;
      c.spec.activation = variant / 2 % 2 == 0 ? Activation::kNone : Activation::kRelu;
      c.accumulate = variant / 3 % 2 == 0;
      c.of_inputs = variant % 5 != 0;
      c.of_weights = variant % 7 != 0;
      ASSERT_TRUE(cpu::lowered_fits(c.spec));
      const Results expected = results_of(oracle, c, nullptr);
      for (const std::int64_t one : sets.all()) {
        const std::string set = sets.use(one);
        for (int threads : {1, 3}) {
          SCOPED_TRACE(
              fmt::format("{}, {} threads, variant {}, {}x{}x{} to {} by {}x{} / {}, {} rows", set,
                          threads, variant, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[8]));
          cpu::Library library(threads);
          const Results results = results_of(machine, c, &library);
          // If a gradient was not requested, both machines leave the number that marks empty
          // memory.
          expect_close(machine, {results[0], results[2], results[3]},
                       {expected[0], expected[2], expected[3]});
          if (c.of_inputs) expect_close(machine, {results[1]}, {expected[1]});
          if (HasFatalFailure()) return;
          EXPECT_EQ(results_of(machine, c, &library), results);
        }
      }
    }
  }
}

TEST(Lowered, NoRowsGiveNoGradients) {
  const ConvolutionSpec s{4, 4, 16, 32, 3, 3, 2, 1, false};
  for (int threads : {1, 2}) {
    cpu::Library library(threads);
    std::vector<float> w(s.weights(), 1), dw(s.weights(), 2);
    cpu::lowered_backward(library, s, 0, nullptr, nullptr, nullptr, w.data(), nullptr, dw.data(),
                          nullptr, true);
    EXPECT_EQ(dw, std::vector<float>(s.weights(), 2));
    cpu::lowered_backward(library, s, 0, nullptr, nullptr, nullptr, w.data(), nullptr, dw.data(),
                          nullptr, false);
    EXPECT_EQ(dw, std::vector<float>(s.weights(), 0));
  }
}

}  // namespace lowered_test
}  // namespace lockstep::engine
