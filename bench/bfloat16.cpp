// SPDX-License-Identifier: MIT
// Compares the speed of bfloat16 and float32 kernels with one thread, layer by layer: the
// convolutions and dense layers of resnet50 and mnist_cnn, forward and backward. The unit is GF/s
// of the direct method, which Winograd can exceed. The clock is that of the thread; the fastest of
// several rounds counts. Results in bfloat16 are compared with those in float32.
//
//   bench_bfloat16 [rows]
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "tools/bench/program_flags.h"

namespace lockstep::engine {
namespace {

constexpr int kTurns = 5;

// Holds a tensor with one of both element types. The numbers are equal in both, because bfloat16
// represents them.
class Numbers {
 public:
  Numbers(Device& device, const Shape& shape, DType dtype, double size = 1)
      : memory_(device.allocate(shape.elements() * size_of(dtype))) {
    tensor = {memory_.data(), shape, dtype};
    Random random(shape.elements());
    for (std::size_t i = 0; i < shape.elements(); ++i) {
      const BFloat16 number(float(random.uniform(-size, size)));
      if (dtype == DType::kFloat32) {
        tensor.as<float>()[i] = number;
      } else {
        tensor.as<BFloat16>()[i] = number;
      }
    }
  }
  std::vector<float> values() const {
    std::vector<float> all(tensor.elements());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] =
          tensor.dtype == DType::kFloat32 ? tensor.as<float>()[i] : float(tensor.as<BFloat16>()[i]);
    }
    return all;
  }
  Tensor tensor;

 private:
  Buffer memory_;
};

struct Times {
  double forward = 1e9, of_weights = 1e9, of_inputs = 1e9;
  std::vector<float> y, dw, dx;
};

double difference(const std::vector<float>& found, const std::vector<float>& wanted) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    error += std::pow(double(found[i]) - double(wanted[i]), 2);
    size += std::pow(double(wanted[i]), 2);
  }
  return std::sqrt(error / size);
}

void take(double& least, const std::function<void()>& call) {
  const double begin = thread_seconds();
  call();
  least = std::min(least, thread_seconds() - begin);
}

Times measure(Device& device, Ops& ops, const ConvolutionSpec& s, std::size_t rows, bool first) {
  const DType t = ops.dtype();
  const Shape in{rows, s.height, s.width, s.channels};
  const Shape out{rows, s.output_height(), s.output_width(), s.filters};
  const Shape kernel{s.filters, s.kernel_height, s.kernel_width, s.channels};
  const Numbers x(device, in, t), w(device, kernel, t), b(device, {s.filters}, t);
  const Numbers dy(device, out, t), y(device, out, t), dx(device, in, t), dw(device, kernel, t);
  StepState state;
  state.examples = std::int64_t(rows);
  Times times;
  for (int turn = 0; turn < kTurns; ++turn) {
    take(times.forward,
         [&] { ops.convolution_forward(&state, s, x.tensor, w.tensor, b.tensor, y.tensor); });
    take(times.of_weights, [&] {
      ops.convolution_backward(&state, s, x.tensor, y.tensor, dy.tensor, w.tensor, {}, dw.tensor,
                               {}, false);
    });
    if (first) continue;
    take(times.of_inputs, [&] {
      ops.convolution_backward(&state, s, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor, {},
                               {}, false);
    });
  }
  times.y = y.values(), times.dw = dw.values(), times.dx = dx.values();
  return times;
}

Times measure(Device& device, Ops& ops, const DenseSpec& s, std::size_t rows) {
  const DType t = ops.dtype();
  const Shape in{rows, s.inputs}, out{rows, s.outputs}, weights{s.outputs, s.inputs};
  const Numbers x(device, in, t), w(device, weights, t), b(device, {s.outputs}, t);
  const Numbers dy(device, out, t), y(device, out, t), dx(device, in, t), dw(device, weights, t);
  StepState state;
  state.examples = std::int64_t(rows);
  Times times;
  for (int turn = 0; turn < kTurns; ++turn) {
    take(times.forward,
         [&] { ops.dense_forward(&state, s, x.tensor, w.tensor, b.tensor, y.tensor); });
    take(times.of_weights, [&] {
      ops.dense_backward(&state, s, x.tensor, y.tensor, dy.tensor, w.tensor, {}, dw.tensor, {},
                         false);
    });
    take(times.of_inputs, [&] {
      ops.dense_backward(&state, s, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor, {}, {},
                         false);
    });
  }
  times.y = y.values(), times.dw = dw.values(), times.dx = dx.values();
  return times;
}

// Prints the rates of forward, gradient of the weights and gradient of the input.
void print(const std::string& name, double operations, const std::vector<Times>& all) {
  fmt::print("| {} |", name);
  for (const Times& t : all) {
    for (const double seconds : {t.forward, t.of_weights, t.of_inputs}) {
      fmt::print(" {:.0f}", operations / seconds / 1e9);
    }
    fmt::print(" |");
  }
  fmt::print("\n");
  std::fflush(stdout);
  for (const Times& t : all) {
    require(difference(t.y, all[0].y) < 1e-2, "{}: outputs differ", name);
    require(difference(t.dw, all[0].dw) < 3e-2, "{}: gradients of weights differ", name);
    require(difference(t.dx, all[0].dx) < 3e-2, "{}: gradients of inputs differ", name);
  }
}

void run(std::size_t rows) {
  const auto device = cpu_device();
  std::vector<std::unique_ptr<Ops>> ops;
  ops.push_back(device->ops(DType::kFloat32, {}));
  for (Kernels kernels : {Kernels::kDirect, Kernels::kAuto}) {
    ops.push_back(device->ops(DType::kBFloat16, {.kernels = kernels}));
  }
  fmt::print("GF/s forward, of weights, of inputs; {} rows\n", rows);
  fmt::print("| layer | float32 | bfloat16 direct | bfloat16 |\n");
  fmt::print("|---|---|---|---|\n");
  // Columns: side, channels, filters, kernel, stride, padding
  const std::size_t cases[][6] = {
      {224, 3, 64, 7, 2, 3},    {56, 64, 64, 1, 1, 0},    {56, 64, 64, 3, 1, 1},
      {56, 64, 256, 1, 1, 0},   {56, 256, 64, 1, 1, 0},   {56, 256, 128, 1, 1, 0},
      {56, 128, 128, 3, 2, 1},  {28, 128, 512, 1, 1, 0},  {56, 256, 512, 1, 2, 0},
      {28, 512, 128, 1, 1, 0},  {28, 128, 128, 3, 1, 1},  {28, 512, 256, 1, 1, 0},
      {28, 256, 256, 3, 2, 1},  {14, 256, 1024, 1, 1, 0}, {28, 512, 1024, 1, 2, 0},
      {14, 1024, 256, 1, 1, 0}, {14, 256, 256, 3, 1, 1},  {14, 1024, 512, 1, 1, 0},
      {14, 512, 512, 3, 2, 1},  {7, 512, 2048, 1, 1, 0},  {14, 1024, 2048, 1, 2, 0},
      {7, 2048, 512, 1, 1, 0},  {7, 512, 512, 3, 1, 1},   {28, 1, 32, 3, 1, 0},
      {26, 32, 64, 3, 1, 0},
  };
  for (const auto& c : cases) {
    const ConvolutionSpec s{c[0], c[0], c[1], c[2], c[3], c[3], c[4], c[5]};
    const double operations =
        2.0 * double(rows * s.outputs() * s.kernel_height * s.kernel_width) * double(s.channels);
    std::vector<Times> all;
    for (const auto& one : ops) all.push_back(measure(*device, *one, s, rows, c[1] < 16));
    print(fmt::format("{}x{}x{} to {}, {}x{}, stride {}", c[0], c[0], c[1], c[2], c[3], c[3], c[4]),
          operations, all);
  }
  for (const DenseSpec& s : {DenseSpec{2048, 1000}, DenseSpec{9216, 128}, DenseSpec{128, 10}}) {
    std::vector<Times> all;
    for (const auto& one : ops) all.push_back(measure(*device, *one, s, rows));
    print(fmt::format("dense {} to {}", s.inputs, s.outputs),
          2.0 * double(rows * s.inputs * s.outputs), all);
  }
}

}  // namespace
}  // namespace lockstep::engine

int main(int argc, char** argv) {
  using lockstep::tools::bench::NumberRange;
  lockstep::tools::bench::ProgramFlags flags("bench_bfloat16", "Kernels in bfloat16 on one core.");
  std::size_t rows = 16;
  flags.option("--rows", rows, "examples in a batch", NumberRange{1, 4096});
  return flags.run(argc, argv, [&] {
    lockstep::engine::run(rows);
    return 0;
  });
}
