// SPDX-License-Identifier: MIT
#include "bench/convolutions.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <string_view>

#include "bench/kernel_bench.h"
#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/peak.h"

namespace lockstep::engine {
namespace {

constexpr int kRuns = 7;

ConvolutionSpec square(std::size_t side, std::size_t channels, std::size_t filters,
                       std::size_t kernel, std::size_t stride) {
  return {side, side, channels, filters, kernel, kernel, stride, kernel / 2, false};
}

// Returns the convolutions of He et al., Deep Residual Learning for Image Recognition (2016), table
// 1, with the stride in the 3x3.
std::vector<CountedConvolution> resnet50() {
  std::vector<CountedConvolution> all = {{square(224, 3, 64, 7, 2), 1, false}};
  constexpr std::size_t kBlocks[] = {3, 4, 6, 3};
  std::size_t side = 56, before = 64;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::size_t narrow = std::size_t{64} << stage, wide = 4 * narrow;
    const std::size_t stride = stage == 0 ? 1 : 2, out = side / stride;
    all.push_back({square(side, before, narrow, 1, 1), 1});
    all.push_back({square(side, narrow, narrow, 3, stride), 1});
    all.push_back({square(side, before, wide, 1, stride), 1});
    all.push_back({square(out, wide, narrow, 1, 1), kBlocks[stage] - 1});
    all.push_back({square(out, narrow, narrow, 3, 1), kBlocks[stage] - 1});
    all.push_back({square(out, narrow, wide, 1, 1), kBlocks[stage]});
    side = out;
    before = wide;
  }
  return all;
}

void dirty(const Tensor& tensor) {
  float* const values = tensor.as<float>();
  for (std::size_t i = 0; i < tensor.elements(); ++i) values[i] = -values[i];
}

void consume(const Tensor& tensor) {
  double sum = 0;
  for (std::size_t i = 0; i < tensor.elements(); ++i) sum += std::abs(tensor.as<float>()[i]);
  require(std::isfinite(sum) && sum > 0, "the result of a kernel is {} in sum", sum);
}

// Holds the seconds of one convolution.
struct ConvolutionTimes {
  double forward = 0, of_inputs = 0, of_weights = 0, backward = 0;
};

ConvolutionTimes measure_convolution(Device& device, Ops& ops, const ConvolutionSpec& s,
                                     std::size_t rows, bool of_inputs) {
  StepState state;
  state.examples = std::int64_t(rows);
  const Batch x = random_batch(device, {rows, s.height, s.width, s.channels});
  const Batch dx = random_batch(device, x.tensor.shape);
  const Batch y = random_batch(device, {rows, s.output_height(), s.output_width(), s.filters});
  const Batch dy = random_batch(device, y.tensor.shape);
  const Batch w = random_batch(device, {s.filters, s.kernel_height, s.kernel_width, s.channels});
  const Batch dw = random_batch(device, w.tensor.shape);
  const auto timed = [](std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> results,
                        const std::function<void()>& kernel) {
    std::vector<double> times;
    for (int run = 0; run <= kRuns; ++run) {
      for (const Tensor& tensor : inputs) dirty(tensor);
      const double start = thread_seconds();
      kernel();
      if (run > 0) times.push_back(thread_seconds() - start);
      for (const Tensor& tensor : results) consume(tensor);
    }
    return engine::median(times);
  };
  const auto backward = [&](const Tensor& to_inputs, const Tensor& to_weights) {
    ops.convolution_backward(&state, s, x.tensor, y.tensor, dy.tensor, w.tensor, to_inputs,
                             to_weights, {}, false);
  };
  ConvolutionTimes times;
  times.forward = timed({x.tensor, w.tensor}, {y.tensor}, [&] {
    ops.convolution_forward(&state, s, x.tensor, w.tensor, {}, y.tensor);
  });
  times.of_weights = timed({x.tensor, dy.tensor}, {dw.tensor}, [&] { backward({}, dw.tensor); });
  times.backward = times.of_weights;
  if (!of_inputs) return times;
  times.of_inputs = timed({dy.tensor, w.tensor}, {dx.tensor}, [&] { backward(dx.tensor, {}); });
  times.backward = timed({x.tensor, dy.tensor, w.tensor}, {dx.tensor, dw.tensor},
                         [&] { backward(dx.tensor, dw.tensor); });
  return times;
}

}  // namespace

std::vector<CountedConvolution> parse_convolutions(const std::string& text) {
  if (text == "resnet50") return resnet50();
  std::size_t numbers[8] = {}, count = 0;
  const char *at = text.data(), *const end = at + text.size();
  while (count < 8) {
    const auto [next, error] = std::from_chars(at, end, numbers[count]);
    if (error != std::errc() || numbers[count] > 65536) break;
    ++count;
    if (next == end || *next != ',') {
      at = next;
      break;
    }
    at = next + 1;
  }
  const auto& n = numbers;
  require(count == 8 && at == end && n[4] > 0 && n[5] > 0 && n[0] + 2 * n[6] >= n[4] &&
              n[1] + 2 * n[6] >= n[4] && n[2] > 0 && n[3] > 0 && n[7] > 0,
          "'{}' is no convolution: resnet50, or height,width,channels,filters,kernel,stride,"
          "padding,count",
          text);
  return {{{n[0], n[1], n[2], n[3], n[4], n[4], n[5], n[6], false}, n[7]}};
}

void bench_convolutions(std::span<const CountedConvolution> convolutions, std::size_t rows,
                        Kernels kernels) {
  const std::unique_ptr<Device> device = cpu_device();
  const std::unique_ptr<Ops> ops = device->ops(DType::kFloat32, {.kernels = kernels});
  const double peak = cpu::measure_peak().flops;
  std::vector<ConvolutionTimes> all;
  double step = 0, forward = 0, operations = 0;
  for (const auto& [spec, count, of_inputs] : convolutions) {
    all.push_back(measure_convolution(*device, *ops, spec, rows, of_inputs));
    forward += double(count) * all.back().forward;
    step += double(count) * (all.back().forward + all.back().backward);
  }
  fmt::print("{} rows, {}, peak {:.0f} GF/s\n\n", rows, device->description(), peak / 1e9);
  fmt::print(
      "| convolution | count | forward ms | GF/s | dx ms | GF/s | dw ms | GF/s | "
      "both ms | share of peak | share of step |\n|---|---|---|---|---|---|---|---|---|---|"
      "---|\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [s, count, of_inputs] = convolutions[i];
    const ConvolutionTimes& t = all[i];
    const double once =
        2.0 * double(rows * s.outputs()) * double(s.kernel_height * s.kernel_width * s.channels);
    const double times = double(count) * (t.forward + t.backward);
    const double done = double(count) * once * (of_inputs ? 3 : 2);
    operations += done;
    const auto cell = [&](double seconds) {
      return seconds == 0 ? std::string("- | -")
                          : fmt::format("{:.2f} | {:.0f}", seconds * 1e3, once / seconds / 1e9);
    };
    fmt::print("| {}x{}x{} to {}, {}x{}{} | {} | {} | {} | {} | {:.2f} | {:.0f} % | {:.1f} % |\n",
               s.height, s.width, s.channels, s.filters, s.kernel_height, s.kernel_width,
               s.stride == 1 ? "" : fmt::format(" / {}", s.stride), count, cell(t.forward),
               cell(t.of_inputs), cell(t.of_weights), t.backward * 1e3, 100 * done / times / peak,
               100 * times / step);
  }
  fmt::print(
      "\nforward {:.1f} ms, backward {:.1f} ms, together {:.1f} ms, {:.0f} GF/s, {:.0f} % of "
      "the peak\n",
      forward * 1e3, (step - forward) * 1e3, step * 1e3, operations / step / 1e9,
      100 * operations / step / peak);
}

}  // namespace lockstep::engine
