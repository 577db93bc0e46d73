// SPDX-License-Identifier: MIT
// Tests that convolutions and checksums agree with the reference for every instruction set of this
// machine.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/cpu/checksum.h"
#include "engine/ops/definitions.h"
#include "test/engine/ops/conformance.h"
#include "test/engine/ops/instruction_sets.h"

namespace lockstep::engine {
namespace instructions_test {

class Instructions : public Conformance {};

// Returns the results of the convolution, or of the convolution and its pool.
Results gradients(Machine& m, const PooledConvolutionSpec& p, bool pooled, std::size_t rows) {
  const ConvolutionSpec& s = p.convolution;
  const PoolSpec pool = p.pool();
  const StepState* const state = m.publish(state_of(rows));
  const Shape in{rows, s.height, s.width, s.channels};
  const Shape out{rows, pooled ? pool.output_height() : s.output_height(),
                  pooled ? pool.output_width() : s.output_width(), s.filters};
  const Shape kernel{s.filters, s.kernel_height, s.kernel_width, s.channels};
  const Operand x = m.operand(in, random_numbers(in.elements(), 1));
  const Operand w = m.operand(kernel, random_numbers(kernel.elements(), 2));
  const Operand b = m.operand({s.filters}, random_numbers(s.filters, 3));
  const Operand dy = m.operand(out, random_numbers(out.elements(), 4));
  const Operand y = m.empty(out), dx = m.empty(in), dw = m.empty(kernel), db = m.empty({s.filters});
  if (pooled) {
    const Buffer workspace = m.device().allocate(m.ops().pooled_convolution_workspace(p, rows));
    const PooledConvolutionMemory memory{workspace.data(), rows};
    m.ops().pooled_convolution_forward(state, p, x.tensor, w.tensor, b.tensor, y.tensor, memory);
    m.ops().pooled_convolution_backward(state, p, x.tensor, dy.tensor, w.tensor, dx.tensor,
                                        dw.tensor, db.tensor, memory, false);
  } else {
    m.ops().convolution_forward(state, s, x.tensor, w.tensor, b.tensor, y.tensor);
    // Backward does not use y: values of 0 or nearly 0 may have either sign, since sums differ in
    // order.
    const Operand past = m.operand(out, random_numbers(out.elements(), 5));
    m.ops().convolution_backward(state, s, x.tensor, past.tensor, dy.tensor, w.tensor, dx.tensor,
                                 dw.tensor, db.tensor, false);
  }
  return {y.values(), dx.values(), dw.values(), db.values()};
}

TEST_F(Instructions, OfEverySetGiveWhatTheReferenceGives) {
  InstructionSets sets;
  ASSERT_FALSE(sets.all().empty());
  for (const std::int64_t one : sets.all()) {
    const std::string set = sets.use(one);
    for (std::size_t padding : {0, 1, 2}) {
      for (Activation activation : {Activation::kNone, Activation::kRelu}) {
        for (ConvolutionSpec s :
             {ConvolutionSpec{7, 9, 16, 48, 3, 3, 1}, ConvolutionSpec{6, 5, 32, 80, 3, 3, 1},
              ConvolutionSpec{9, 7, 3, 16, 3, 3, 1}, ConvolutionSpec{8, 9, 1, 32, 5, 5, 2}}) {
          s.padding = padding;
          s.activation = activation;
          const std::string what = fmt::format("{}, {}x{}x{} to {}, padding {}", set, s.height,
                                               s.width, s.channels, s.filters, padding);
          for (bool pooled : {false, true}) {
            compare_products(
                what + (pooled ? ", pooled" : ""),
                [&](Machine& m) {
                  return gradients(m, {s, 2}, pooled, 3);
                },
                [&](const Machine& m) {
                  return !pooled || chooses_unrounded(m, {s, 2});
                },
                &s);
            if (enough_failed()) return;
          }
        }
      }
    }
  }
}

TEST(Checksum, IsTheSumOfItsWordsByEverySet) {
  std::vector<std::byte> memory(400);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i * 37 + 200);
  InstructionSets sets;
  for (const std::int64_t one : sets.all()) {
    SCOPED_TRACE(sets.use(one));
    for (const std::size_t offset : {std::size_t(0), std::size_t(5), std::size_t(1) << 31}) {
      for (std::size_t bytes = 0; bytes < 300; ++bytes) {
        const std::byte* const data = memory.data() + bytes % 5;  // aligned or not
        std::uint64_t sum = 0;
        for (std::size_t at = 0; at < bytes; ++at)
          sum += checksum_word(std::uint32_t(data[at]) << at % 4 * 8, offset + at / 4);
        ASSERT_EQ(cpu::checksum(data, bytes, offset), sum) << bytes << " bytes, from " << offset;
      }
    }
  }
}

}  // namespace instructions_test
}  // namespace lockstep::engine
