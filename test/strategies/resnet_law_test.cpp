// SPDX-License-Identifier: MIT
// A residual network with synchronised batch norm: two replicas make the steps of one, on the
// reference device. Some seconds.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/random.h"
#include "engine/train/trainer.h"
#include "models/resnet.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace resnet_law_test {

// Images whose colours follow their class, with noise.
class Images final : public engine::Dataset {
 public:
  std::uint64_t size() const override { return 40; }
  engine::Shape input_shape() const override { return {32, 32, 3}; }
  std::size_t target_columns() const override { return 1; }
  std::size_t classes() const override { return 10; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    engine::Random random(5, index);
    const std::uint64_t label = index % 10;
    for (std::size_t i = 0; i < input.size(); ++i) {
      const double wave = std::sin(double((label + 2) * (i / 3 % 32 + i / 96)) / 16);
      input[i] = float((i % 3 == label % 3 ? 1 : 0.3) * wave + random.uniform(-0.5, 0.5));
    }
    target[0] = float(label);
  }
  std::string describe() const override { return "waves"; }
  std::uint64_t fingerprint() const override { return 99; }
};

std::vector<double> weights_after(int count, std::int64_t steps) {
  strategies::SynchronousOptions options = replicas(count);
  options.bucket_bytes = std::size_t(256) << 10;
  strategies::Mirrored strategy(options);
  engine::TrainerOptions trainer_options;
  trainer_options.log = engine::Log("", engine::Log::Level::kError);
  engine::Trainer trainer(strategy, models::resnet20({.synchronised = true}),
                          engine::optim::sgd({.rate = 0.05, .momentum = 0.9}), trainer_options);
  engine::FitOptions fit;
  fit.steps = steps;
  fit.global_batch = 4;
  fit.prefetch_threads = 0;
  trainer.fit(Images(), fit);
  return strategy.weights(0);
}

TEST(Resnet20, TwoReplicasHaveTheParametersOfOneAfterTenSteps) {
  const std::vector<double> start = weights_after(1, 1);
  const std::vector<double> one = weights_after(1, 10), two = weights_after(2, 10);
  EXPECT_LT(difference(one, two), 1e-10);
  EXPECT_GT(difference(one, start), 1e-3) << "nothing was learnt";
}

}  // namespace resnet_law_test
}  // namespace lockstep::test
