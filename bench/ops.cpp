// SPDX-License-Identifier: MIT
// Times each kernel of mnist_cnn's layers at 128 rows on one core. It prints milliseconds of the
// fastest run, GF/s, and the images per second of all kernels together. Then it times the reduction
// of several sources, in GB/s of memory read and written. The clock is that of the thread, which
// stops while another program has the core. Results are checked: a wrong one fails the run.
// `bench_ops --convolutions resnet50` measures convolutions instead: bench/convolutions.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "bench/convolutions.h"
#include "bench/kernel_bench.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "tools/bench/program_flags.h"

namespace lockstep::engine {
namespace {

constexpr std::size_t kRows = 128;

class Bench {
 public:
  Bench() : device_(cpu_device()), ops_(device_->ops(DType::kFloat32, {})) {
    state_.examples = kRows;
    state_.inverse_examples = 1.0 / kRows;
  }
  Batch batch(const Shape& shape) { return random_batch(*device_, shape); }
  // Times a kernel and adds its time to the step. `result` must be finite afterwards, and not all
  // zeros.
  void time(const char* name, double operations, const Tensor& result,
            const std::function<void()>& kernel) {
    const double seconds = fastest(kernel);
    step_ += seconds;
    std::printf("%-28s %9.3f ms %8.1f GF/s\n", name, seconds * 1e3, operations / seconds / 1e9);
    double sum = 0;
    for (std::size_t i = 0; i < result.elements(); ++i) sum += std::abs(result.as<float>()[i]);
    require(std::isfinite(sum) && sum > 0, "{}: the result is {} in sum", name, sum);
  }
  double fastest(const std::function<void()>& kernel) {
    kernel();
    double least = 1e9;
    for (int i = 0; i < 15; ++i) {
      const double start = thread_seconds();
      kernel();
      least = std::min(least, thread_seconds() - start);
    }
    return least;
  }
  void convolution(const char* name, const ConvolutionSpec& s, bool of_inputs);
  void pool(const PoolSpec& s);
  void dense(const char* name, const DenseSpec& s);
  void loss();
  void reduce(std::size_t sources);
  double step() const { return step_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  StepState state_;
  double step_ = 0;
};

void Bench::convolution(const char* name, const ConvolutionSpec& s, bool of_inputs) {
  Batch x = batch({kRows, s.height, s.width, s.channels}), dx = batch(x.tensor.shape);
  Batch y = batch({kRows, s.output_height(), s.output_width(), s.filters});
  Batch dy = batch(y.tensor.shape);
  Batch w = batch({s.filters, s.kernel_height, s.kernel_width, s.channels});
  Batch dw = batch(w.tensor.shape), b = batch({s.filters}), db = batch({s.filters});
  const double operations =
      2.0 * double(y.tensor.elements()) * double(s.kernel_height * s.kernel_width * s.channels);
  time(fmt::format("{} forward", name).c_str(), operations, y.tensor,
       [&] { ops_->convolution_forward(&state_, s, x.tensor, w.tensor, b.tensor, y.tensor); });
  time(fmt::format("{} backward", name).c_str(), operations * (of_inputs ? 2 : 1), dw.tensor, [&] {
    ops_->convolution_backward(&state_, s, x.tensor, y.tensor, dy.tensor, w.tensor,
                               of_inputs ? dx.tensor : Tensor{}, dw.tensor, db.tensor, false);
  });
}

void Bench::pool(const PoolSpec& s) {
  Batch x = batch({kRows, s.height, s.width, s.channels}), dx = batch(x.tensor.shape);
  Batch y = batch({kRows, s.output_height(), s.output_width(), s.channels});
  const Buffer workspace = device_->allocate(ops_->pool_workspace(s, kRows));
  const double operations = double(x.tensor.elements());
  time("pool forward", operations, y.tensor,
       [&] { ops_->pool_forward(&state_, s, x.tensor, y.tensor, workspace.data()); });
  time("pool backward", operations, dx.tensor,
       [&] { ops_->pool_backward(&state_, s, y.tensor, dx.tensor, workspace.data()); });
}

void Bench::dense(const char* name, const DenseSpec& s) {
  Batch x = batch({kRows, s.inputs}), dx = batch(x.tensor.shape);
  Batch y = batch({kRows, s.outputs}), dy = batch(y.tensor.shape);
  Batch w = batch({s.outputs, s.inputs}), dw = batch(w.tensor.shape);
  Batch b = batch({s.outputs}), db = batch({s.outputs});
  const double operations = 2.0 * double(kRows * s.inputs * s.outputs);
  time(fmt::format("{} forward", name).c_str(), operations, y.tensor,
       [&] { ops_->dense_forward(&state_, s, x.tensor, w.tensor, b.tensor, y.tensor); });
  time(fmt::format("{} backward", name).c_str(), operations * 2, dw.tensor, [&] {
    ops_->dense_backward(&state_, s, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor, dw.tensor,
                         db.tensor, false);
  });
}

void Bench::loss() {
  Batch logits = batch({kRows, 10}), gradient = batch({kRows, 10}), target = batch({kRows, 1});
  Batch numbers = batch({4 * kRows});
  std::fill_n(target.tensor.as<float>(), kRows, 3.0f);
  const Tensor losses{numbers.memory.data(), {kRows}, DType::kFloat64};
  const Tensor correct{numbers.memory.data() + kRows * 8, {kRows}, DType::kFloat64};
  time("softmax cross entropy", 10.0 * kRows, gradient.tensor, [&] {
    ops_->softmax_cross_entropy(&state_, 0, logits.tensor, target.tensor, gradient.tensor, losses,
                                correct);
  });
}

void Bench::reduce(std::size_t sources) {
  const std::size_t count = std::size_t(4) << 20;
  std::vector<Batch> from;
  for (std::size_t s = 0; s < sources; ++s) from.push_back(batch({count}));
  Batch to = batch({count});
  const double seconds = fastest([&] {
    std::vector<const std::byte*> reads(sources);
    for (std::size_t block = 0; block < count; block += kBlock) {
      for (std::size_t s = 0; s < sources; ++s) reads[s] = from[s].memory.data() + 4 * block;
      std::byte* writes[] = {to.memory.data() + 4 * block};
      ReduceArguments a;
      a.from = reads;
      a.to = writes;
      a.count = kBlock;
      ops_->reduce(a);
    }
  });
  for (std::size_t i = 0; i < count; i += 997) {
    const double all = double(sources) * double(from[0].tensor.as<float>()[i]);
    require(std::abs(double(to.tensor.as<float>()[i]) - all) < 1e-5, "element {} is wrong", i);
  }
  const double bytes = double(count * 4 * (sources + 1));
  std::printf("reduce of %zu x 16 MiB         %9.3f ms %8.1f GB/s\n", sources, seconds * 1e3,
              bytes / seconds / 1e9);
}

}  // namespace
}  // namespace lockstep::engine

namespace {

void bench_mnist_cnn() {
  using namespace lockstep::engine;
  Bench bench;
  const Activation relu = Activation::kRelu;
  bench.convolution("conv1", {28, 28, 1, 32, 3, 3, 1, 0, true, relu}, false);
  bench.convolution("conv2", {26, 26, 32, 64, 3, 3, 1, 0, true, relu}, true);
  bench.pool({PoolKind::kMax, 24, 24, 64, 2, 2, 2, 0});
  bench.dense("dense1", {9216, 128, true, relu});
  bench.dense("dense2", {128, 10});
  bench.loss();
  std::printf("mnist_cnn forward and backward %7.3f ms, %.0f images/s\n", bench.step() * 1e3,
              double(kRows) / bench.step());
  for (std::size_t sources : {1u, 2u, 4u, 8u}) bench.reduce(sources);
}

}  // namespace

int main(int argc, char** argv) {
  using lockstep::tools::bench::NumberRange, lockstep::tools::bench::ProgramFlags;
  using namespace lockstep::engine;
  ProgramFlags flags("bench_ops", "Kernels alone on one core.");
  std::vector<std::string> convolutions;
  std::size_t rows = 16;
  std::string kernels = "auto";
  flags.option("--convolutions", convolutions,
               "resnet50, or height,width,channels,filters,kernel,stride,padding,count each");
  flags.option("--rows", rows, "of a batch", NumberRange{1, 4096});
  flags.option("--kernels", kernels, "auto, direct or winograd");
  return flags.run(argc, argv, [&] {
    if (convolutions.empty()) {
      bench_mnist_cnn();
      return 0;
    }
    std::vector<CountedConvolution> all;
    for (const std::string& text : convolutions) {
      for (const CountedConvolution& one : parse_convolutions(text)) all.push_back(one);
    }
    bench_convolutions(all, rows, kernels_of(kernels));
    return 0;
  });
}
