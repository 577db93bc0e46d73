// SPDX-License-Identifier: MIT
// Every device of this machine trains a whole graph as the reference does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "test/engine/nn/sample_graphs.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace {

using testing::IsSupersetOf;

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

TEST(Devices, GiveTheOutputsLossesAndGradientsOfTheReference) {
  const auto exact = reference_ops(DType::kFloat64);
  std::vector<std::string> compared;
  for (const auto& device : all_devices()) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      if (!device->supports(dtype)) continue;
      const auto ops = device->ops(dtype, 1);
      compared.push_back(to_string(device->id()) + " " + std::string(name(dtype)));
      for (const GraphSpec& spec : sample_graphs()) {
        for (std::size_t examples : {std::size_t(5), std::size_t(3), std::size_t(0)}) {
          Solo expected(spec, *exact, 5), found(spec, *ops, 5);
          for (Solo* solo : {&expected, &found}) {
            solo->fill(0, examples, 5, spec.output_shape().elements());
            solo->step();
            solo->step(true);
          }
          const std::string what = to_string(device->id()) + " " + std::string(name(dtype)) + " " +
                                   spec.name() + " " + std::to_string(examples);
          const double tolerance = dtype == DType::kFloat32 ? 1e-5 : 1e-12;
          EXPECT_LT(distance(found.gradient(), expected.gradient()), tolerance) << what;
          EXPECT_NEAR(found.loss(), expected.loss(), tolerance) << what;
          std::vector<double> outputs = found.output(), wanted = expected.output();
          outputs.resize(examples * spec.output_shape().elements());
          wanted.resize(outputs.size());
          EXPECT_LT(distance(outputs, wanted), tolerance) << what;
        }
      }
    }
  }
  EXPECT_THAT(compared,
              IsSupersetOf({"cpu:0 float32", "reference:0 float32", "reference:0 float64"}));
}

}  // namespace
}  // namespace lockstep::engine
