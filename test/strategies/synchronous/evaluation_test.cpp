// SPDX-License-Identifier: MIT
// An evaluation reads each example once, in order and without augmentation. Its result does not
// depend on the number of replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace evaluation_test {

using testing::ElementsAreArray;

// Records which examples are read, and returns other examples in training.
class Watched : public Table {
 public:
  Watched() : Table(39, 20, 5) {}
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    std::scoped_lock lock(mutex_);
    plain.push_back(index);
    Table::read(index, input, target);
  }
  void read_in(std::int64_t, std::uint64_t index, std::span<float> input,
               std::span<float> target) const override {
    std::scoped_lock lock(mutex_);
    augmented.push_back(index);
    Table::read(38 - index, input, target);
  }
  mutable std::vector<std::uint64_t> plain, augmented;

 private:
  mutable std::mutex mutex_;
};

std::vector<std::uint64_t> in_order() {
  std::vector<std::uint64_t> all(39);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

engine::Trainer trainer_of(engine::Strategy& strategy) {
  engine::TrainerOptions options;
  options.log = engine::Log("", engine::Log::Level::kError);
  return {strategy, small_graph({}), engine::optim::sgd({.rate = 0.02}), options};
}

strategies::SynchronousOptions in_float64(int count) {
  auto options = replicas(count);
  options.step.dtype = engine::DType::kFloat64;
  return options;
}

// The evaluation of 39 examples in batches of 11 is in order, even after training in another order.
TEST(Evaluation, ReadsEachExampleOnceInOrderAsItIs) {
  const Watched data;
  strategies::Mirrored strategy(in_float64(1));
  engine::Trainer trainer = trainer_of(strategy);
  trainer.fit(data, {.epochs = 2, .global_batch = 11, .prefetch_threads = 0});
  EXPECT_THAT(data.plain, testing::IsEmpty());
  const std::vector<std::uint64_t> first_epoch(data.augmented.begin(), data.augmented.begin() + 39);
  EXPECT_THAT(first_epoch, testing::UnorderedElementsAreArray(in_order()));
  EXPECT_NE(first_epoch, in_order());
  data.augmented.clear();
  EXPECT_EQ(trainer.evaluate(data).examples, 39u);
  EXPECT_THAT(data.plain, ElementsAreArray(in_order()));
  EXPECT_THAT(data.augmented, testing::IsEmpty());
  trainer.evaluate(data, 5);
  EXPECT_EQ(data.plain.size(), 2 * 39u);
}

// A parameter's values are those of its elements, in every process; the loss depends on them.
TEST(Evaluation, WeightsAreThoseThatTheTrainerHolds) {
  const Watched data;
  strategies::Mirrored strategy(in_float64(2));
  engine::Trainer trainer = trainer_of(strategy);
  EXPECT_THROW(trainer.weights("dense1.weight"), engine::Error);
  trainer.fit(data, {.epochs = 1, .global_batch = 11});
  const std::vector<double> all = weights(strategy, 1), mine = trainer.weights("dense1.weight");
  EXPECT_EQ(mine.size(), 20u * 64);
  EXPECT_NE(std::ranges::search(all, mine).begin(), all.end());
  try {
    trainer.weights("no.such");
    ADD_FAILURE() << "there is no such parameter";
  } catch (const engine::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("has no parameter no.such; it has "));
  }
  EXPECT_THROW(trainer.predict(data, 11, {}), engine::Error);
}

// The evaluation of a fit does the same, and its loss is the mean over the unchanged examples.
TEST(Evaluation, OfAFitIsThatOfTheDataAsTheyAreForAnyNumberOfReplicas) {
  std::vector<double> losses;
  for (const int count : {1, 2, 3}) {
    const Watched test;
    strategies::Mirrored strategy(in_float64(count));
    engine::Trainer trainer = trainer_of(strategy);
    const engine::History history = trainer.fit(
        small_data(), {.steps = 1, .global_batch = 11, .test = &test, .prefetch_threads = 0});
    EXPECT_THAT(test.plain, testing::UnorderedElementsAreArray(in_order())) << count;
    EXPECT_THAT(test.augmented, testing::IsEmpty()) << count;
    losses.push_back(history.test->loss);
    double sum = 0;
    std::map<std::int64_t, int> seen;
    trainer.predict(test, 0, [&](std::int64_t example, std::span<const double> output) {
      std::vector<float> input(20), target(5);
      test.Table::read(std::uint64_t(example), input, target);
      double squares = 0;
      for (std::size_t i = 0; i < 5; ++i)
        squares += (output[i] - double(target[i])) * (output[i] - double(target[i]));
      sum += squares / 5;
      ++seen[example];
    });
    EXPECT_EQ(seen.size(), 39u);
    EXPECT_NEAR(losses.back(), sum / 39, 1e-9) << count;
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-9);
  EXPECT_NEAR(losses[2], losses[0], 1e-9);
}

}  // namespace evaluation_test
}  // namespace lockstep::test
