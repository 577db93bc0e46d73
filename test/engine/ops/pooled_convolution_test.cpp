// SPDX-License-Identifier: MIT
// Tests convolutions followed by a max pool on every device, whole and in slices.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "test/engine/ops/conformance.h"

namespace lockstep::engine {
namespace pooled_convolution_test {

// Returns the results of a batch in slices of `slice` rows. No two values of a window are closer
// than rounding errors, or devices could choose differently: the numbers are continuous and the
// seeds fixed.
// `wanted`: bits of dx, dw, db. `apart`: runs the two kernels separately.
Results pooled_case(Machine& m, const PooledConvolutionSpec& spec, Rows rows, bool accumulate,
                    std::size_t slice, int wanted, bool apart = false) {
  const ConvolutionSpec& c = spec.convolution;
  const PoolSpec pool = spec.pool();
  StepState state = state_of(rows.used);
  const StepState* published = nullptr;
  const std::size_t inputs = c.height * c.width * c.channels;
  const std::size_t outputs = pool.output_height() * pool.output_width() * c.filters;
  const Operand x = m.operand({rows.planned, c.height, c.width, c.channels},
                              random_batch(rows.planned, rows.used, inputs, 1));
  const Shape kernel{c.filters, c.kernel_height, c.kernel_width, c.channels};
  const Operand w = m.operand(kernel, random_numbers(kernel.elements(), 2));
  const Operand b = m.operand({c.filters}, random_numbers(c.filters, 3));
  const Shape out{rows.planned, pool.output_height(), pool.output_width(), c.filters};
  const Operand y = m.empty(out), dx = m.empty(x.tensor.shape);
  const Operand dy = m.operand(out, random_batch(rows.planned, rows.used, outputs, 4));
  const Operand dw = m.operand(kernel, random_numbers(kernel.elements(), 5));
  const Operand db = m.operand({c.filters}, random_numbers(c.filters, 6));
  Ops& ops = m.ops();
  const Buffer workspace =
      m.device().allocate(apart ? ops.Ops::pooled_convolution_workspace(spec, rows.planned)
                                : ops.pooled_convolution_workspace(spec, rows.planned));
  const auto part = [&](const Operand& o, std::size_t first, std::size_t count) {
    Tensor t = o.tensor;
    t.data += first * t.columns() * size_of(t.dtype);
    t.shape = {count, t.shape[1], t.shape[2], t.shape[3]};
    return t;
  };
  const auto each_slice = [&](auto body) {
    for (std::size_t first = 0; first == 0 || first < rows.used; first += slice) {
      const std::size_t count = std::min(slice, rows.used - first);
      state.examples = std::int64_t(count);
      published = m.publish(state);
      body(first, count,
           PooledConvolutionMemory{
               workspace.data(), rows.planned, first, {first == 0, first + slice >= rows.used}});
    }
  };
  each_slice([&](std::size_t first, std::size_t count, const PooledConvolutionMemory& memory) {
    const Tensor from = part(x, first, count), to = part(y, first, count);
    const Tensor bias = c.bias ? b.tensor : Tensor{};
    if (apart) {
      ops.Ops::pooled_convolution_forward(published, spec, from, w.tensor, bias, to, memory);
    } else {
      ops.pooled_convolution_forward(published, spec, from, w.tensor, bias, to, memory);
    }
  });
  each_slice([&](std::size_t first, std::size_t count, const PooledConvolutionMemory& memory) {
    const Tensor from = part(x, first, count), gradient = part(dy, first, count);
    const Tensor to = wanted & 1 ? part(dx, first, count) : Tensor{};
    const Tensor of_weights = wanted & 2 ? dw.tensor : Tensor{};
    const Tensor of_bias = c.bias && wanted & 4 ? db.tensor : Tensor{};
    if (apart) {
      ops.Ops::pooled_convolution_backward(published, spec, from, gradient, w.tensor, to,
                                           of_weights, of_bias, memory, accumulate);
    } else {
      ops.pooled_convolution_backward(published, spec, from, gradient, w.tensor, to, of_weights,
                                      of_bias, memory, accumulate);
    }
  });
  return {y.values(rows.used), dx.values(rows.used), dw.values(), db.values()};
}

using PooledConvolution = Conformance;

// The columns are height, width, channels, filters, kernel, stride, padding, window.
constexpr std::size_t kCases[][8] = {
    {10, 10, 16, 32, 3, 1, 0, 2}, {9, 8, 16, 16, 3, 1, 1, 2},   {7, 11, 32, 48, 3, 1, 2, 2},
    {12, 12, 1, 16, 3, 1, 0, 2},  {12, 12, 16, 16, 3, 1, 1, 3}, {11, 9, 5, 6, 5, 1, 2, 2},
    {9, 9, 4, 7, 3, 2, 1, 2},     {20, 20, 2, 4, 3, 1, 1, 17},
};

TEST_F(PooledConvolution, IsTheConvolutionAndThePoolInSlicesToo) {
  int counter = 0;
  for (const auto& p : kCases) {
    for (Rows rows : {Rows{1, 1}, Rows{4, 0}, Rows{9, 7}}) {
      for (std::size_t slice : {rows.planned, std::size_t{3}}) {
        const int variant = counter++;
        PooledConvolutionSpec spec{{p[0], p[1], p[2], p[3], p[4], p[4], p[5], p[6]}, p[7]};
        spec.convolution.bias = variant % 2 == 0;
        spec.convolution.activation = variant % 3 == 0 ? Activation::kNone : Activation::kRelu;
        const bool accumulate = variant % 5 < 2;
        const int wanted = 7 - (variant % 3 == 1 ? variant / 3 % 7 : 0);
        compare_products(
            fmt::format("convolution {}x{}x{} to {} by {}, stride {}, padding {}, pool {}, {} of "
                        "{} rows, slices of {}, variant {}, wanted {}",
                        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], rows.used, rows.planned,
                        slice, variant, wanted),
            [&](Machine& m) { return pooled_case(m, spec, rows, accumulate, slice, wanted); },
            [&](const Machine& m) {
              // cuDNN, which rounds more than once, needs aligned operands, and slices are not
              // aligned.
              return chooses_unrounded(m, spec) && (slice == rows.planned || m.roundings() == 1);
            },
            &spec.convolution);
        if (enough_failed()) return;
      }
    }
  }
}

// If the convolution's output is rounded before the pool, the reference cannot tell which of
// several equal values wins.
TEST_F(PooledConvolution, OfBfloat16IsItsOwnConvolutionAndPool) {
  int counter = 0;
  for (const auto& p : kCases) {
    for (Rows rows : {Rows{1, 1}, Rows{4, 0}, Rows{9, 7}}) {
      const int variant = counter++;
      PooledConvolutionSpec spec{{p[0], p[1], p[2], p[3], p[4], p[4], p[5], p[6]}, p[7]};
      spec.convolution.activation = variant % 3 == 0 ? Activation::kNone : Activation::kRelu;
      for (Machine& m : machines_) {
        if (m.dtype() != DType::kBFloat16 || m.kernels() != Kernels::kDirect) continue;
        SCOPED_TRACE(fmt::format("{}, case {}", m.name(), variant));
        const bool accumulate = variant % 2 == 1;
        expect_close(m, pooled_case(m, spec, rows, accumulate, rows.planned, 7),
                     pooled_case(m, spec, rows, accumulate, rows.planned, 7, true));
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace pooled_convolution_test
}  // namespace lockstep::engine
