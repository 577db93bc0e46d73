// SPDX-License-Identifier: MIT
// Tests that every model's step on a fake GPU agrees with the processor's. The largest image
// networks are excluded: loops in place of the libraries would take minutes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/random.h"
#include "engine/cpu/cpu_device.h"
#include "engine/ops/ops.h"
#include "models/registry.h"
#include "models/wide_deep.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/engine/nn/solo.h"

namespace lockstep::models {
namespace gpu_models_test {

using engine::DType;

// Returns the relative distance over all numbers.
double distance(const std::vector<double>& found, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

class GpuModels : public testing::Test {
 protected:
  // Compares two steps of `rows` rows, of which the last is not in use. The second step uses
  // updated statistics.
  void compare(const engine::GraphSpec& spec, std::size_t rows, DType dtype, double tolerance,
               const std::vector<float>& numbers = {}) {
    SCOPED_TRACE(spec.name() + " " + std::string(engine::name(dtype)));
    const auto here = gpu_->ops(dtype, {}), there = processor_->ops(dtype, {});
    engine::Solo found(spec, *here, rows), expected(spec, *there, rows);
    for (engine::Solo* solo : {&found, &expected}) {
      solo->fill(0, rows - 1, rows - 1,
                 spec.loss().counts_correct() ? spec.output_shape().elements() : 0);
      if (!numbers.empty()) solo->context.ops->load(numbers.data(), solo->graph.input());
      solo->step();
      solo->step();
    }
    std::vector<double> outputs = found.output(), wanted = expected.output();
    const std::size_t counted = (rows - 1) * spec.output_shape().elements();
    outputs.resize(counted), wanted.resize(counted);
    EXPECT_LT(distance(outputs, wanted), tolerance);
    EXPECT_LT(distance(found.gradient(), expected.gradient()), tolerance);
    EXPECT_NEAR(found.loss(), expected.loss(), tolerance * expected.loss());
    const auto mine = found.graph.statistic_values(), theirs = expected.graph.statistic_values();
    ASSERT_EQ(mine.size(), theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i)
      ASSERT_NEAR(mine[i], theirs[i], tolerance * std::max(1.0, std::abs(theirs[i])));
  }

  std::unique_ptr<engine::Device> gpu_ =
      engine::cuda::fake_device({.memory = std::size_t(1) << 30});
  std::unique_ptr<engine::Device> processor_ = engine::cpu_device();
};

TEST_F(GpuModels, OfDigits) {
  for (const char* name : {"mlp", "lenet5", "mnist_cnn"}) {
    compare(build(name), 4, DType::kFloat32, 1e-5);
    compare(build(name), 4, DType::kBFloat16, 3e-2);
  }
}

TEST_F(GpuModels, ResidualNetworks) {
  compare(build("resnet20"), 3, DType::kFloat32, 1e-4);
}

TEST_F(GpuModels, Tables) {
  std::vector<float> numbers;
  for (std::size_t row = 0; row < 6; ++row) {
    engine::Random random(3, row);
    for (std::size_t column = 0; column < 39; ++column)
      numbers.push_back(column < 13 ? float(random.uniform()) : float(random.below(5)));
  }
  compare(wide_deep({.buckets = 5, .columns = 3}), 6, DType::kFloat32, 1e-5, numbers);
}

}  // namespace gpu_models_test
}  // namespace lockstep::models
