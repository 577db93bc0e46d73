// SPDX-License-Identifier: MIT
// A residual network with synchronized batch norm: several replicas make the steps of one. The test
// makes ten steps on the reference device, which takes some seconds, and one step in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/random.h"
#include "engine/cpu/cpu_device.h"
#include "engine/train/staging.h"
#include "engine/train/trainer.h"
#include "models/resnet.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace resnet_law_test {

// Provides noisy images whose colors follow their class.
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
  options.step.bucket_bytes = std::size_t(256) << 10;
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
  return weights(strategy, 0);
}

TEST(Resnet20, TwoReplicasHaveTheParametersOfOneAfterTenSteps) {
  const std::vector<double> start = weights_after(1, 1);
  const std::vector<double> one = weights_after(1, 10), two = weights_after(2, 10);
  EXPECT_LT(difference(one, two), 1e-10);
  EXPECT_GT(difference(one, start), 1e-3) << "nothing was learnt";
}

// Records which outputs of ReLU are positive for one replica's examples. All ReLU layers except
// those of the shortcuts are fused into the batch norms before them.
class Signs final : public engine::Observer {
 public:
  explicit Signs(const engine::Replica& replica) : replica_(replica) {}
  bool timed() const override { return false; }
  void layer(const std::string& name, Pass pass, engine::Clock::time_point,
             engine::Clock::time_point, engine::Tensor y) override {
    if (pass != Pass::kForward || !(name.ends_with("bn1") || name.ends_with("bn2"))) return;
    const std::size_t rows = std::min(y.rows(), std::size_t(replica_.state.examples));
    for (std::size_t i = 0; i < rows * y.columns(); ++i)
      of_layer[name].push_back(y.as<float>()[i] > 0);
  }
  std::map<std::string, std::vector<bool>> of_layer;

 private:
  const engine::Replica& replica_;
};

struct OneStep {
  std::vector<double> change;                         // change of the parameters
  std::map<std::string, std::vector<bool>> positive;  // by layer, in batch order
};

// Sets all inputs of ReLU to about 1 in half of the channels, and to at most about -1 in the
// others.
void keep_away_from_zero(engine::Replica& replica) {
  for (const engine::Parameter& p : replica.graph.layout()) {
    const bool scale = p.name.ends_with(".scale"), shift = p.name.ends_with(".shift");
    float* const values = replica.graph.weight(p).as<float>();
    for (std::size_t c = 0; (scale || shift) && c < p.range.size(); ++c)
      values[c] = scale ? 0.1f : c % 2 == 0 ? 1.0f : -1.0f;
  }
}

OneStep one_step(int count, engine::Kernels kernels, bool away) {
  constexpr std::size_t kBatch = 9;
  const auto device = engine::cpu_device();
  strategies::SynchronousOptions options = replicas(count);
  options.devices.assign(std::size_t(count), device.get());
  options.step.dtype = engine::DType::kFloat32;
  options.step.kernels = kernels;
  strategies::Mirrored strategy(options);
  strategy.open(models::resnet20({.synchronised = true}), engine::optim::sgd().rule,
                {kBatch, 1, 1, {}});
  strategy.assign({40, kBatch, 0, 1, {}, true});
  const Images images;
  std::vector<std::map<std::string, std::vector<bool>>> positive(options.devices.size());
  std::vector<double> before;
  if (away) strategy.run(keep_away_from_zero);
  before = weights(strategy, 0);
  strategy.run([&](engine::Replica& r) {
    engine::Pipeline pipeline(images, {.seed = 1, .in_place = true});
    const auto work = strategy.next(r);
    pipeline.request(work->epoch, work->local_batch);
    engine::stage(r, pipeline.take(), work->step, work->global_batch, 0.1);
    Signs signs(r);
    r.graph.observe(&signs);
    r.graph.forward(*r.context, [&](engine::Range x) { strategy.before_forward(r, x); });
    r.graph.observe(nullptr);
    r.graph.evaluate_loss(*r.context, true);
    r.graph.backward(*r.context, false, [&](engine::Range x) { strategy.gradient_ready(r, x); });
    strategy.finish(r);
    positive[std::size_t(r.rank)] = std::move(signs.of_layer);
  });
  OneStep step{weights(strategy, 0), {}};
  for (std::size_t i = 0; i < before.size(); ++i) step.change[i] -= before[i];
  for (const auto& replica : positive)
    for (const auto& [layer, mine] : replica)
      step.positive[layer].insert(step.positive[layer].end(), mine.begin(), mine.end());
  return step;
}

// Returns the number of ReLU outputs that are zero in one step and positive in the other.
std::size_t flips(const OneStep& a, const OneStep& b) {
  std::size_t sum = 0, outputs = 0;
  for (const auto& [layer, signs] : a.positive) {
    const std::vector<bool>& others = b.positive.at(layer);
    EXPECT_EQ(signs.size(), others.size());
    outputs += signs.size();
    for (std::size_t i = 0; i < signs.size(); ++i) sum += signs[i] != others[i];
  }
  EXPECT_EQ(outputs, 9u * (7 * 16384 + 6 * 8192 + 6 * 4096)) << "an output of ReLU is missing";
  return sum;
}

TEST(Resnet20, MakesTheSameStepInFloat32WhereInputsOfReluAreNotNearZero) {
  const OneStep one = one_step(1, engine::Kernels::kAuto, true);
  for (const int count : {2, 3}) {
    const OneStep many = one_step(count, engine::Kernels::kAuto, true);
    EXPECT_EQ(flips(one, many), 0u) << count;
    EXPECT_LT(relative(many.change, one.change), 1e-5) << count;
  }
}

// If an input of ReLU is near zero, rounding decides on its sign and so on the gradient.
TEST(Resnet20, DiffersMoreInFloat32OnlyWhereAnOutputOfReluFlips) {
  for (const engine::Kernels kernels : {engine::Kernels::kAuto, engine::Kernels::kDirect}) {
    const OneStep one = one_step(1, kernels, false);
    for (const int count : {2, 3}) {
      const OneStep many = one_step(count, kernels, false);
      const double difference = relative(many.change, one.change);
      const std::size_t flipped = flips(one, many);
      EXPECT_LT(difference, flipped == 0 ? 1e-5 : 2e-2) << engine::name(kernels) << ' ' << count;
      EXPECT_LT(flipped, 100u);
    }
  }
}

}  // namespace resnet_law_test
}  // namespace lockstep::test
