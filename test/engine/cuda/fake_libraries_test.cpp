// SPDX-License-Identifier: MIT
// Tests the loops that replace cuBLASLt and cuDNN in tests: they agree with engine/reference, and
// run in stream order.
#include "test/engine/cuda/fake_libraries.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine/cuda/memory.h"
#include "engine/reference/reference_device.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace fake_libraries_test {

using Pass = Convolution::Pass;

// Returns the tolerance. 16-bit results may round differently because the sums are float32.
double tolerance(DType dtype) {
  if (dtype == DType::kFloat32) return 1e-5;
  return dtype == DType::kBFloat16 ? 1e-2 : 2e-3;
}

class FakeLibraries : public testing::TestWithParam<DType> {
 protected:
  FakeLibraries()
      : gpu_({.kernels = library_kernels}),
        driver_(gpu_.driver()),
        context_(driver_, 0),
        memory_(context_),
        kernels_(context_, FakeGpu::image(GetParam())),
        stream_(context_) {}

  // Returns random numbers of the type, in GPU memory.
  Tensor random(std::size_t rows, std::size_t columns) {
    const Tensor tensor = empty(rows, columns);
    for (std::size_t i = 0; i < tensor.elements(); ++i) put(tensor, i, uniform_(random_));
    return tensor;
  }
  Tensor empty(std::size_t rows, std::size_t columns) {
    buffers_.push_back(memory_.allocate(rows * columns * size_of(GetParam())));
    return {buffers_.back().data(), {rows, columns}, GetParam()};
  }
  static void put(Tensor to, std::size_t i, float value) {
    if (to.dtype == DType::kFloat32) to.as<float>()[i] = value;
    if (to.dtype == DType::kBFloat16) to.as<BFloat16>()[i] = BFloat16(value);
    if (to.dtype == DType::kFloat16) to.as<Half>()[i] = Half(value);
  }
  // Returns the same numbers as float32, for the reference.
  Tensor wide(Tensor from) {
    wide_.emplace_back(from.elements() * sizeof(float));
    const Tensor to{wide_.back().data(), from.shape, DType::kFloat32};
    for (std::size_t i = 0; i < from.elements(); ++i) {
      put(to, i, float(number_at(from.data, from.dtype, i)));
    }
    return to;
  }
  void expect_same(Tensor a, Tensor b) {
    stream_.synchronize();
    for (std::size_t i = 0; i < a.elements(); ++i) {
      const double x = number_at(a.data, a.dtype, i), y = number_at(b.data, b.dtype, i);
      ASSERT_NEAR(x, y, tolerance(GetParam()) * (1 + std::abs(y))) << "element " << i;
    }
  }

  FakeGpu gpu_;
  Driver driver_;
  Context context_;
  Memory memory_;
  KernelModule kernels_;
  CudaStream stream_;
  std::vector<Buffer> buffers_, wide_;
  std::unique_ptr<Ops> reference_ = reference_ops(DType::kFloat32);
  std::mt19937 random_{7};
  std::uniform_real_distribution<float> uniform_{-1, 1};
};

constexpr std::size_t kRows = 5;
constexpr StepState kState{.examples = kRows};

TEST_P(FakeLibraries, ProductsAreThoseOfADenseLayer) {
  FakeProducts products(kernels_);
  const DenseSpec spec{.inputs = 7, .outputs = 3, .activation = Activation::kRelu};
  const Tensor x = random(kRows, 7), w = random(3, 7), b = random(1, 3), y = empty(kRows, 3);
  const Product forward{.dtype = GetParam(),
                        .m = kRows,
                        .n = 3,
                        .k = 7,
                        .transpose_b = true,
                        .bias = true,
                        .relu = true};
  Tensor bias = wide(b);
  bias.shape = {3};
  const Tensor expected = wide(y);
  reference_->dense_forward(&kState, spec, wide(x), wide(w), bias, expected);
  products.run(stream_, forward, x.data, w.data, b.data, y.data);
  expect_same(y, expected);
}

TEST_P(FakeLibraries, ProductsAreTheGradientsOfADenseLayer) {
  FakeProducts products(kernels_);
  const DenseSpec spec{.inputs = 7, .outputs = 3, .bias = false};
  const Tensor x = random(kRows, 7), w = random(3, 7), y = random(kRows, 3), dy = random(kRows, 3);
  const Tensor dx = empty(kRows, 7), dw = random(3, 7);
  const Tensor expected_dx = wide(dx), expected_dw = wide(dw);
  reference_->dense_backward(&kState, spec, wide(x), wide(y), wide(dy), wide(w), expected_dx,
                             expected_dw, {}, true);
  products.run(stream_, {.dtype = GetParam(), .m = kRows, .n = 7, .k = 3}, dy.data, w.data, nullptr,
               dx.data);
  products.run(
      stream_,
      {.dtype = GetParam(), .m = 3, .n = 7, .k = kRows, .transpose_a = true, .accumulate = true},
      dy.data, x.data, nullptr, dw.data);
  expect_same(dx, expected_dx);
  expect_same(dw, expected_dw);
}

TEST_P(FakeLibraries, ConvolutionsAreThoseOfTheReference) {
  FakeConvolutions convolutions(kernels_);
  for (const std::size_t stride : {1, 2}) {
    ConvolutionSpec spec{.height = 6,
                         .width = 5,
                         .channels = 3,
                         .filters = 4,
                         .kernel_height = 3,
                         .kernel_width = 2,
                         .stride = stride,
                         .padding = 1};
    spec.activation = Activation::kRelu;
    const Tensor x = random(kRows, spec.inputs()), w = random(1, spec.weights()), b = random(1, 4);
    const Tensor y = empty(kRows, spec.outputs()), expected = wide(y);
    Tensor bias = wide(b);
    bias.shape = {4};
    reference_->convolution_forward(&kState, spec, wide(x), wide(w), bias, expected);
    convolutions.run(stream_, {Pass::kForward, spec, kRows, GetParam(), false}, x.data, w.data,
                     b.data, y.data);
    expect_same(y, expected);

    spec.activation = Activation::kNone;
    spec.bias = false;
    const Tensor dy = random(kRows, spec.outputs());
    const Tensor dx = empty(kRows, spec.inputs()), expected_dx = wide(dx);
    const Tensor dw = random(1, spec.weights()), expected_dw = wide(dw);
    reference_->convolution_backward(&kState, spec, wide(x), wide(y), wide(dy), wide(w),
                                     expected_dx, expected_dw, {}, true);
    convolutions.run(stream_, {Pass::kGradientOfData, spec, kRows, GetParam(), false}, dy.data,
                     w.data, nullptr, dx.data);
    convolutions.run(stream_, {Pass::kGradientOfWeights, spec, kRows, GetParam(), true}, x.data,
                     dy.data, nullptr, dw.data);
    expect_same(dx, expected_dx);
    expect_same(dw, expected_dw);
  }
}

TEST_P(FakeLibraries, NothingIsComputedBeforeTheStreamComesToIt) {
  FakeProducts products(kernels_);
  FakeConvolutions convolutions(kernels_);
  const Tensor a = random(2, 2), b = random(2, 2), c = empty(2, 2), y = empty(2, 2);
  products.run(stream_, {.dtype = GetParam(), .m = 2, .n = 2, .k = 2}, a.data, b.data, nullptr,
               c.data);
  const ConvolutionSpec spec{.height = 1, .width = 1, .channels = 2, .filters = 2, .bias = false};
  convolutions.run(stream_, {Pass::kForward, spec, 2, GetParam(), false}, a.data, b.data, nullptr,
                   y.data);
  EXPECT_EQ(number_at(c.data, c.dtype, 0), 0);
  EXPECT_EQ(number_at(y.data, y.dtype, 0), 0);
  stream_.synchronize();
  EXPECT_NE(number_at(c.data, c.dtype, 0), 0);
  EXPECT_NE(number_at(y.data, y.dtype, 0), 0);
}

TEST_P(FakeLibraries, NanGoesThroughRelu) {
  FakeProducts products(kernels_);
  const Tensor a = empty(1, 1), b = random(1, 1), c = empty(1, 1);
  put(a, 0, std::numeric_limits<float>::quiet_NaN());
  products.run(stream_, {.dtype = GetParam(), .m = 1, .n = 1, .k = 1, .relu = true}, a.data, b.data,
               nullptr, c.data);
  stream_.synchronize();
  EXPECT_TRUE(std::isnan(number_at(c.data, c.dtype, 0)));
}

INSTANTIATE_TEST_SUITE_P(Types, FakeLibraries,
                         testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace fake_libraries_test
}  // namespace lockstep::engine::cuda
