// SPDX-License-Identifier: MIT
// Measures the shapes for which Winograd's method pays: the time of the direct kernels over that of
// lockstep's Winograd kernels, forward and backward together. Shapes are 3x3 with padding 1, with
// one thread, as in the table of bench/RESULTS.md. Bold entries are those that the device
// selects by itself. The clock is that of the thread, which stops while another program has the
// core; the fastest of several rounds counts. Results are compared.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "bench/kernel_bench.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/winograd.h"
#include "tools/bench/program_flags.h"

namespace lockstep::engine {
namespace {

constexpr int kTurns = 7;

// Holds the seconds of the fastest round with each kernel.
struct Pair {
  double winograd = 1e9, direct = 1e9;
};

Pair measure(Device& device, const ConvolutionSpec& s, std::size_t rows) {
  const Batch x = random_batch(device, {rows, s.height, s.width, s.channels});
  const Batch w = random_batch(device, {s.filters, 3, 3, s.channels}),
              b = random_batch(device, {s.filters});
  const Batch dy = random_batch(device, {rows, s.output_height(), s.output_width(), s.filters});
  const auto winograd = device.ops(DType::kFloat32, {.kernels = Kernels::kWinograd});
  const auto direct = device.ops(DType::kFloat32, {.kernels = Kernels::kDirect});
  StepState state;
  state.examples = std::int64_t(rows);
  Pair least;
  std::vector<float> first;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Ops* ops : {winograd.get(), direct.get()}) {
      const Batch y = random_batch(device, dy.tensor.shape),
                  dx = random_batch(device, x.tensor.shape);
      const Batch dw = random_batch(device, w.tensor.shape),
                  db = random_batch(device, b.tensor.shape);
      const double begin = thread_seconds();
      ops->convolution_forward(&state, s, x.tensor, w.tensor, b.tensor, y.tensor);
      ops->convolution_backward(&state, s, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor,
                                dw.tensor, db.tensor, false);
      double& seconds = ops == winograd.get() ? least.winograd : least.direct;
      seconds = std::min(seconds, thread_seconds() - begin);
      std::vector<float> found;
      for (const Tensor& t : {y.tensor, dx.tensor, dw.tensor})
        found.insert(found.end(), t.as<float>(), t.as<float>() + t.elements());
      if (first.empty()) first = found;
      double error = 0, size = 0;
      for (std::size_t i = 0; i < first.size(); ++i) {
        error += double(found[i] - first[i]) * double(found[i] - first[i]);
        size += double(first[i]) * double(first[i]);
      }
      require(size > 0 && error <= 1e-8 * size, "both kernels disagree: {}", error / size);
    }
  }
  return least;
}

void run() {
  const auto device = cpu_device();
  const std::size_t sides[] = {2, 4, 5, 7, 14, 28};
  std::printf("| channels and filters | rows |");
  for (std::size_t side : sides) std::printf(" %zux%zu |", side, side);
  std::printf("\n|---|---|---|---|---|---|---|---|\n");
  for (const auto& [channels, rows] : {std::pair{16, 1}, {16, 64}, {64, 8}, {256, 8}, {256, 64}}) {
    std::printf("| %d | %d |", channels, rows);
    for (std::size_t side : sides) {
      const std::size_t width = std::size_t(channels), count = std::size_t(rows);
      const ConvolutionSpec s{side, side, width, width, 3, 3, 1, 1};
      const Pair pair = measure(*device, s, count);
      const char* bold = cpu::winograd_pays(s, count) ? "**" : "";
      std::printf(" %s%.2f%s |", bold, pair.direct / pair.winograd, bold);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace lockstep::engine

int main(int argc, char** argv) {
  lockstep::tools::bench::ProgramFlags flags("bench_winograd",
                                             "Shapes for which Winograd's method pays.");
  return flags.run(argc, argv, [] {
    lockstep::engine::run();
    return 0;
  });
}
