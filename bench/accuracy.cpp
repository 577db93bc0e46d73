// SPDX-License-Identifier: MIT
// Measures the error of convolutions on processors against double precision, for the fastest
// kernels and for the direct method. A wide dense layer is measured with lockstep's own kernel and
// without it. The error is relative (L2), of the output and of both gradients.
#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/cpu/cpu_device.h"
#include "engine/device/buffer.h"
#include "engine/ops/ops.h"
#include "engine/reference/reference_device.h"
#include "tools/bench/program_flags.h"

namespace lockstep::bench {
namespace {

using engine::DType;
using engine::Tensor;

constexpr std::size_t kRows = 8, kDenseRows = 32;

// Numbers in (-1, 1) that both element types represent exactly.
class Operand {
 public:
  Operand(engine::Shape shape, DType dtype, std::uint64_t seed)
      : memory_(shape.elements() * engine::size_of(dtype)), tensor_{memory_.data(), shape, dtype} {
    engine::Random random(seed, 0);
    for (std::size_t i = 0; i < shape.elements(); ++i) {
      const float number = float(2 * random.uniform() - 1);
      if (dtype == DType::kFloat64) {
        tensor_.as<double>()[i] = double(number);
      } else {
        tensor_.as<float>()[i] = number;
      }
    }
  }
  const Tensor& tensor() const { return tensor_; }
  double at(std::size_t i) const {
    return tensor_.dtype == DType::kFloat64 ? tensor_.as<double>()[i]
                                            : double(tensor_.as<float>()[i]);
  }

 private:
  engine::Buffer memory_;
  Tensor tensor_;
};

struct Results {
  Operand y, dx, dw;
};

Results compute(engine::Ops& ops, const engine::ConvolutionSpec& s) {
  const DType dtype = ops.dtype();
  const engine::Shape in{kRows, s.height, s.width, s.channels};
  const engine::Shape out{kRows, s.output_height(), s.output_width(), s.filters};
  const engine::Shape kernel{s.filters, s.kernel_height, s.kernel_width, s.channels};
  const Operand x(in, dtype, 1), w(kernel, dtype, 2), b({s.filters}, dtype, 3), dy(out, dtype, 4);
  Results r{Operand(out, dtype, 5), Operand(in, dtype, 6), Operand(kernel, dtype, 7)};
  engine::StepState state;
  state.examples = kRows;
  ops.convolution_forward(&state, s, x.tensor(), w.tensor(), b.tensor(), r.y.tensor());
  ops.convolution_backward(&state, s, x.tensor(), r.y.tensor(), dy.tensor(), w.tensor(),
                           r.dx.tensor(), r.dw.tensor(), {}, false);
  return r;
}

Results compute(engine::Ops& ops, const engine::DenseSpec& s) {
  const DType dtype = ops.dtype();
  const engine::Shape in{kDenseRows, s.inputs}, out{kDenseRows, s.outputs};
  const engine::Shape weights{s.outputs, s.inputs};
  const Operand x(in, dtype, 1), w(weights, dtype, 2), b({s.outputs}, dtype, 3), dy(out, dtype, 4);
  Results r{Operand(out, dtype, 5), Operand(in, dtype, 6), Operand(weights, dtype, 7)};
  engine::StepState state;
  state.examples = kDenseRows;
  ops.dense_forward(&state, s, x.tensor(), w.tensor(), b.tensor(), r.y.tensor());
  ops.dense_backward(&state, s, x.tensor(), r.y.tensor(), dy.tensor(), w.tensor(), r.dx.tensor(),
                     r.dw.tensor(), {}, false);
  return r;
}

double error(const Operand& found, const Operand& exact) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < exact.tensor().elements(); ++i) {
    difference += std::pow(found.at(i) - exact.at(i), 2);
    size += std::pow(exact.at(i), 2);
  }
  return std::sqrt(difference / size);
}

void print(const std::string& layer, std::string_view kernels, const Results& found,
           const Results& wanted) {
  const double worst = error(found.y, wanted.y);
  engine::require(worst < 1e-4, "the output is wrong: relative error {}", worst);
  fmt::print("| {} | {} | {:.1e} | {:.1e} | {:.1e} |\n", layer, kernels, worst,
             error(found.dx, wanted.dx), error(found.dw, wanted.dw));
}

void run() {
  const auto device = engine::cpu_device();
  const auto exact = engine::reference_ops(DType::kFloat64);
  fmt::print("| layer | kernels | y | dx | dw |\n|---|---|---|---|---|\n");
  // Columns: height, width, channels, filters, kernel, stride, padding
  const std::size_t cases[][7] = {{28, 28, 1, 32, 3, 1, 0},
                                  {26, 26, 32, 64, 3, 1, 0},
                                  {14, 14, 256, 256, 3, 1, 1},
                                  {56, 56, 3, 64, 4, 2, 1}};
  for (const auto& c : cases) {
    const engine::ConvolutionSpec spec{c[0], c[1], c[2], c[3], c[4], c[4], c[5], c[6]};
    const Results wanted = compute(*exact, spec);
    for (engine::Kernels kernels : {engine::Kernels::kAuto, engine::Kernels::kDirect}) {
      const auto ops = device->ops(DType::kFloat32, {.kernels = kernels});
      print(fmt::format("{}x{}x{} to {}, {}x{}", c[0], c[1], c[2], c[3], c[4], c[4]),
            engine::name(kernels), compute(*ops, spec), wanted);
    }
  }
  const engine::DenseSpec wide{2048, 2048, true, engine::Activation::kNone};
  const Results wanted = compute(*exact, wide);
  for (engine::Kernels kernels : {engine::Kernels::kAuto, engine::Kernels::kDirect}) {
    const auto ops = device->ops(DType::kFloat32, {.kernels = kernels});
    print("dense 2048 to 2048", engine::name(kernels), compute(*ops, wide), wanted);
  }
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::tools::bench::ProgramFlags flags("bench_accuracy",
                                             "Errors of convolutions against double precision.");
  return flags.run(argc, argv, [] {
    lockstep::bench::run();
    return 0;
  });
}
