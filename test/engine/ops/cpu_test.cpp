// SPDX-License-Identifier: MIT
// Tests properties of the CPU device alone, and the list of devices.
#include "engine/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "engine/base/error.h"
#include "engine/cpu/shape_cache.h"
#include "engine/runtime/devices.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {
namespace cpu_test {

using testing::HasSubstr;

constexpr std::size_t kAllowed = std::size_t(1) << 20;  // bytes that are not counted

// Returns the outputs, and the gradients of the inputs, weights, and biases.
std::vector<std::vector<double>> run_convolution(Machine& m, const ConvolutionSpec& spec,
                                                 std::size_t rows) {
  StepState state;
  state.examples = std::int64_t(rows);
  const Shape in{rows, spec.height, spec.width, spec.channels};
  const Shape out{rows, spec.output_height(), spec.output_width(), spec.filters};
  const Shape kernel{spec.filters, spec.kernel_height, spec.kernel_width, spec.channels};
  const Operand x = m.operand(in, random_numbers(in.elements(), 1)), dx = m.empty(in);
  const Operand w = m.operand(kernel, random_numbers(kernel.elements(), 2)), dw = m.empty(kernel);
  const Operand b = m.operand({spec.filters}, random_numbers(spec.filters, 3));
  const Operand db = m.empty({spec.filters}), y = m.empty(out);
  const Operand dy = m.operand(out, random_numbers(out.elements(), 4));
  m.ops().convolution_forward(&state, spec, x.tensor, w.tensor, b.tensor, y.tensor);
  m.ops().convolution_backward(&state, spec, x.tensor, y.tensor, dy.tensor, w.tensor, dx.tensor,
                               dw.tensor, db.tensor, false);
  return {y.values(), dx.values(), dw.values(), db.values()};
}

// The shapes include the convolutions of mnist_cnn and lenet5, the first of which have one channel.
// 20 rows are slices of 8 and a remainder of 4. A fallback is hundreds of times slower, and nothing
// else would reveal it.
TEST(Cpu, NoConvolutionOfTheModelsFallsBackToTheSlowKernels) {
  const auto device = cpu_device();
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Machine m(*device, dtype, {.kernels = Kernels::kDirect});
    for (Activation activation : {Activation::kNone, Activation::kRelu}) {
      for (ConvolutionSpec spec :
           {ConvolutionSpec{28, 28, 1, 32, 3, 3, 1, 0}, ConvolutionSpec{26, 26, 32, 64, 3, 3, 1, 0},
            ConvolutionSpec{28, 28, 1, 6, 5, 5, 1, 2}, ConvolutionSpec{14, 14, 6, 16, 5, 5, 1, 0},
            ConvolutionSpec{28, 28, 1, 6, 5, 5, 1, 0}, ConvolutionSpec{5, 5, 16, 120, 5, 5, 1, 0},
            ConvolutionSpec{32, 32, 3, 64, 7, 7, 2, 3},
            ConvolutionSpec{8, 8, 64, 32, 1, 1, 2, 0}}) {
        spec.activation = activation;
        run_convolution(m, spec, 20);
      }
    }
    const std::vector<std::string> names = implementations(m.ops());
    EXPECT_EQ(names.size(), 24u);  // each: forward and two gradients
    for (const std::string& name : names) EXPECT_THAT(name, Not(HasSubstr("ref")));
  }
}

// The prediction creates no kernels, so it only estimates the memory of the library's kernels. It
// is never far too low, nor more than twice too high.
TEST(Cpu, WhatKernelsHoldIsToldBefore) {
  const auto device = cpu_device();
  for (const ConvolutionSpec& spec :
       {ConvolutionSpec{14, 14, 256, 256, 3, 3, 1, 1},
        ConvolutionSpec{14, 14, 250, 250, 3, 3, 1, 1},
        ConvolutionSpec{14, 14, 256, 512, 3, 3, 2, 1}, ConvolutionSpec{7, 7, 512, 512, 1, 1, 1, 0},
        ConvolutionSpec{64, 64, 3, 32, 4, 4, 1, 2}}) {
    for (const OpsOptions& options :
         {OpsOptions{}, OpsOptions{.kernels = Kernels::kDirect}, OpsOptions{.threads = 3}}) {
      Machine m(*device, DType::kFloat32, options);
      run_convolution(m, spec, 24);
      const std::size_t told = m.ops().convolution_memory(spec, 24).bytes();
      const std::size_t held = held_by(m.ops());
      const std::string what = fmt::format("{}, {} to {}", m.name(), spec.channels, spec.filters);
      EXPECT_GT(held, 0u) << what;
      EXPECT_LE(held, told + told / 4 + kAllowed) << what;
      EXPECT_LE(told, 2 * held + kAllowed) << what;
    }
  }
}

TEST(Cpu, ImplementationsOfAnotherDeviceAreNotKnown) {
  const auto devices = host_devices();
  const auto ops = find(devices, {"reference", 0}).ops(DType::kFloat64, {});
  EXPECT_TRUE(implementations(*ops).empty());
}

TEST(Cpu, ReplicasOfSeveralThreadsComputeAtTheSameTime) {
  const auto device = cpu_device();
  const auto compute = [&device] {
    Machine m(*device, DType::kFloat32, {.threads = 2});
    std::vector<std::vector<std::vector<double>>> all;
    for (std::size_t rows : {20u, 3u, 20u})
      all.push_back(run_convolution(m, {8, 8, 3, 4, 3, 3, 1, 1}, rows));
    return all;
  };
  const auto alone = compute();
  std::vector<std::future<decltype(compute())>> replicas;
  for (int replica = 0; replica < 3; ++replica)
    replicas.push_back(std::async(std::launch::async, compute));
  for (auto& replica : replicas) EXPECT_EQ(replica.get(), alone);
}

TEST(Cpu, RefusesTypesAndThreadsThatItDoesNotHave) {
  const auto device = cpu_device();
  EXPECT_EQ(device->default_dtype(), DType::kFloat32);
  for (DType dtype : {DType::kFloat64, DType::kInt32, DType::kInt64}) {
    EXPECT_FALSE(device->supports(dtype));
    try {
      device->ops(dtype, {});
      ADD_FAILURE() << "made kernels for " << name(dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr("cpu:0"));
      EXPECT_THAT(error.what(), HasSubstr(std::string(name(dtype))));
    }
  }
  EXPECT_THROW(device->ops(DType::kFloat32, {.threads = 0}), Error);
}

TEST(Devices, BeginWithTheCpuAndAreFoundByName) {
  const auto devices = host_devices();
  ASSERT_GE(devices.size(), 2u);
  EXPECT_EQ(to_string(devices[0]->id()), "cpu:0");
  EXPECT_EQ(to_string(devices[1]->id()), "reference:0");
  for (const auto& device : devices) {
    EXPECT_EQ(&find(devices, device->id()), device.get());
    EXPECT_TRUE(device->supports(device->default_dtype()));
    EXPECT_FALSE(device->description().empty());
    EXPECT_FALSE(device->instructions().empty());
    device->stream()->synchronize();
  }
  for (const char* kind : {"cpu", "cuda"}) {
    try {
      find(devices, {kind, 3});
      ADD_FAILURE() << "found a device that is not there";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      const std::string known =
          fmt::format("there is no device {}:3; this machine has cpu:0, reference:0", kind);
      // For GPUs, the message also says why there are none, or no more.
      EXPECT_THAT(error.what(), kind == std::string("cpu")
                                    ? testing::Matcher<const char*>(testing::StrEq(known))
                                    : testing::StartsWith(known + "; "));
    }
  }
}

TEST(DeviceId, IsReadAndWritten) {
  EXPECT_EQ(parse_device_id("cpu"), (DeviceId{"cpu", 0}));
  EXPECT_EQ(parse_device_id("reference:12"), (DeviceId{"reference", 12}));
  EXPECT_EQ(to_string(parse_device_id("cpu:7")), "cpu:7");
  for (const char* text : {"", ":", ":1", "cpu:", "cpu:x", "cpu:-1", "cpu:1x", "cpu:99999999999"}) {
    EXPECT_THROW(parse_device_id(text), Error) << text;
  }
}

TEST(ShapeCache, KeepsTheNumbersOfRowsThatWereUsedLast) {
  cpu::ShapeCache<int, std::size_t> cache;
  int made = 0;
  const auto use = [&](int spec, std::size_t rows) {
    return cache.find(spec, rows, [&] {
      ++made;
      return std::make_unique<std::size_t>(rows);
    });
  };
  for (std::size_t rows = 1; rows <= 20; ++rows) {
    EXPECT_EQ(use(1, 128), 128u);
    EXPECT_EQ(use(1, rows), rows);
  }
  EXPECT_EQ(made, 21);  // 128 was never evicted
  EXPECT_EQ(cache.size(), 4u);
  EXPECT_EQ(use(1, 20), 20u);
  EXPECT_EQ(made, 21);
  EXPECT_EQ(use(2, 20), 20u);
  EXPECT_EQ(made, 22);
  EXPECT_EQ(use(1, 1), 1u);
  EXPECT_EQ(made, 23);
}

}  // namespace cpu_test
}  // namespace lockstep::engine
