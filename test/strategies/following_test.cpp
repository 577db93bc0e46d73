// SPDX-License-Identifier: MIT
// One process leads a fit, and the others make the steps that it assigns to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/reference/reference_device.h"
#include "test/strategies/asynchronous_strategy.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace following_test {

using engine::Error;
using engine::WorkSpec;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kSeed = 9;

WorkSpec segment(std::int64_t first, std::int64_t steps) {
  WorkSpec work;
  work.examples = 39;
  work.global_batch = 11;
  work.first_step = first;
  work.steps = steps;
  work.position = {first / 4, 11 * std::uint64_t(first % 4)};
  work.run_steps = 20;
  work.seed = kSeed;
  return work;
}

// Follows a leader whose assignments come from a list.
class Following : public AsynchronousStrategy {
 public:
  explicit Following(engine::Device& device) : AsynchronousStrategy(1, device) {}
  bool follows() const override { return true; }
  std::optional<WorkSpec> assignment() override {
    if (given == orders.size()) return std::nullopt;
    return orders[given++];
  }
  void lead() override { FAIL() << "it follows"; }
  void released() override { FAIL() << "it follows"; }
  std::vector<WorkSpec> orders;
  std::size_t given = 0;
};

class Fitting {
 public:
  explicit Fitting(engine::Strategy& strategy)
      : trainer(strategy, small_graph({}), engine::optim::sgd({.rate = 0.01}), {.seed = kSeed}) {
    options.steps = 20;
    options.global_batch = 11;
    options.on_step = [this](const engine::StepReport& report) {
      steps.push_back(report.step);
      of.push_back(report.steps);
    };
  }
  engine::History run() { return trainer.fit(small_data(), options); }
  engine::Trainer trainer;
  engine::FitOptions options;
  std::vector<std::int64_t> steps, of;  // of the reports
};

std::string error_of(Fitting& fitting) {
  try {
    fitting.run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(Following, MakesTheStepsOfEachOrderAndNoOthers) {
  const auto device = engine::reference_device();
  Following strategy(*device);
  strategy.orders = {segment(4, 2), segment(10, 3)};
  Fitting fitting(strategy);
  const engine::History history = fitting.run();
  EXPECT_THAT(fitting.steps, ElementsAre(4, 5, 10, 11, 12));
  EXPECT_THAT(fitting.of, testing::Each(20)) << "schedules run over the leader's steps";
  EXPECT_EQ(history.first_step, 4);
  EXPECT_EQ(history.steps, 13);
  EXPECT_EQ(history.interrupted, 0);
}

TEST(Following, WithoutAnOrderNothingIsDone) {
  const auto device = engine::reference_device();
  Following strategy(*device);
  Fitting fitting(strategy);
  EXPECT_EQ(fitting.run().steps, 0);
  EXPECT_TRUE(fitting.steps.empty());
  EXPECT_EQ(fitting.trainer.evaluate(small_data()).examples, 0u) << "the leader evaluates";
}

TEST(Following, RefusesOrdersForOtherDataOrAnotherSeed) {
  const auto device = engine::reference_device();
  const auto refused = [&](auto change) {
    Following strategy(*device);
    strategy.orders = {segment(0, 2)};
    change(strategy.orders[0]);
    Fitting fitting(strategy);
    const std::string why = error_of(fitting);
    EXPECT_TRUE(fitting.steps.empty());
    return why;
  };
  EXPECT_THAT(refused([](WorkSpec& work) { work.seed = 8; }), HasSubstr("with seed 8"));
  EXPECT_THAT(refused([](WorkSpec& work) { work.examples = 40; }), HasSubstr("40 examples"));
  EXPECT_THAT(refused([](WorkSpec& work) { work.global_batch = 12; }), HasSubstr("batches of 12"));
  EXPECT_EQ(refused([](WorkSpec& work) {
              work.global_batch = 10;
              work.steps = 0;
            }),
            "no error")
      << "smaller batches fit";
}

TEST(Following, TellsThatItWasInterrupted) {
  const auto device = engine::reference_device();
  Following strategy(*device);
  strategy.orders = {segment(0, 6)};
  const std::atomic<int> interrupt = 15;
  Fitting fitting(strategy);
  fitting.options.interrupt = &interrupt;
  EXPECT_EQ(fitting.run().interrupted, 15);
}

// Leads segments of which it makes one step itself; other processes make the rest. It reports the
// position of the run itself.
class Leading : public AsynchronousStrategy {
 public:
  explicit Leading(engine::Device& device) : AsynchronousStrategy(1, device) {}
  void lead() override { ++began; }
  void released() override { ++ended; }
  void assign(const WorkSpec& work) override {
    if (work.training) segments.push_back(work);
    WorkSpec mine = work;
    if (work.training) mine.steps = 1;  // other processes make the rest
    AsynchronousStrategy::assign(mine);
  }
  std::optional<engine::Standing> standing() const override {
    if (fail) engine::fail(engine::Code::kPeerLost, "all followers are gone");
    const WorkSpec& last = segments.back();
    engine::DataPosition position = last.position;
    for (std::int64_t i = 0; i < last.steps; ++i)
      position = engine::after_batch(position, last.examples, last.global_batch);
    return engine::Standing{last.first_step + last.steps, position};
  }
  int began = 0, ended = 0;
  bool fail = false;
  std::vector<WorkSpec> segments;
};

TEST(Leading, GoesOnFromWhereTheStrategySaysThatTheRunStands) {
  const auto device = engine::reference_device();
  Leading strategy(*device);
  Fitting fitting(strategy);
  const engine::History history = fitting.run();
  EXPECT_EQ(history.steps, 20);
  ASSERT_EQ(strategy.segments.size(), 5u) << "an epoch of four steps each";
  for (std::int64_t i = 0; i < 5; ++i) {
    const WorkSpec& work = strategy.segments[std::size_t(i)];
    EXPECT_EQ(work.first_step, 4 * i);
    EXPECT_EQ(work.position, (engine::DataPosition{i, 0}));
    EXPECT_EQ(work.run_steps, 20);
    EXPECT_EQ(work.seed, kSeed);
  }
  EXPECT_EQ(strategy.began, 1);
  EXPECT_EQ(strategy.ended, 1);
  EXPECT_GT(history.examples_per_second, 0);
}

TEST(Leading, WhoIsThrownOutReleasesNobody) {
  const auto device = engine::reference_device();
  Leading strategy(*device);
  strategy.fail = true;
  Fitting fitting(strategy);
  EXPECT_THROW(fitting.run(), Error);
  EXPECT_EQ(strategy.began, 1);
  EXPECT_EQ(strategy.ended, 0);
}

}  // namespace following_test
}  // namespace lockstep::test
