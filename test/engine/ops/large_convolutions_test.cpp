// SPDX-License-Identifier: MIT
// Tests convolutions that exceed the caches, for which the kernels of lockstep use non-temporal
// stores or larger groups of tiles. They are compared with the direct method of the same device
// because the reference would take minutes.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "engine/cpu/cpu_device.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {
namespace large_convolutions_test {

Results results_of(Machine& m, const ConvolutionSpec& s, std::size_t rows, bool accumulate) {
  StepState state;
  state.examples = std::int64_t(rows);
  const Shape in{rows, s.height, s.width, s.channels};
  const Shape out{rows, s.output_height(), s.output_width(), s.filters};
  const Shape kernel{s.filters, s.kernel_height, s.kernel_width, s.channels};
  const Operand x = m.operand(in, random_numbers(in.elements(), 1)), dx = m.empty(in);
  const Operand w = m.operand(kernel, random_numbers(kernel.elements(), 2));
  const Operand dw = m.operand(kernel, random_numbers(kernel.elements(), 3));
  const Operand dy = m.operand(out, random_numbers(out.elements(), 4)), y = m.empty(out);
  m.ops().convolution_forward(&state, s, x.tensor, w.tensor, {}, y.tensor);
  m.ops().convolution_backward(&state, s, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor,
                               dw.tensor, {}, accumulate);
  return {y.values(), dx.values(), dw.values()};
}

TEST(LargeConvolutions, AreWhatTheDirectMethodGives) {
  const auto device = cpu_device();
  bool accumulate = false;
  for (const ConvolutionSpec& s : {ConvolutionSpec{56, 56, 16, 96, 1, 1, 1, 0, false},
                                   ConvolutionSpec{56, 56, 96, 16, 1, 1, 1, 0, false},
                                   ConvolutionSpec{14, 14, 192, 256, 3, 3, 1, 1, false},
                                   ConvolutionSpec{7, 7, 384, 320, 3, 3, 1, 1, false}}) {
    accumulate = !accumulate;
    Machine direct(*device, DType::kFloat32, {.kernels = Kernels::kDirect});
    const Results expected = results_of(direct, s, 16, accumulate);
    Machine own(*device, DType::kFloat32, {.threads = accumulate ? 1 : 2});
    SCOPED_TRACE(fmt::format("{}x{}x{} to {} by {}x{}", s.height, s.width, s.channels, s.filters,
                             s.kernel_height, s.kernel_width));
    expect_close(own, results_of(own, s, 16, accumulate), expected);
    if (HasFatalFailure()) return;
  }
}

}  // namespace large_convolutions_test
}  // namespace lockstep::engine
