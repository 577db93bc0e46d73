// SPDX-License-Identifier: MIT
// Pushes update a job's shards: asynchronous, synchronous, stale, repeated, late, and by rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <random>
#include <thread>

#include "engine/runtime/devices.h"
#include "strategies/parameter_server/rpc/array_reader.h"
#include "test/strategies/parameter_server/server/small_server.h"

namespace lockstep::test {
namespace shard_updates_test {

using namespace strategies;
using testing::ElementsAre;

JobSpec job(std::uint32_t workers, engine::UpdateRule rule = sgd_rule()) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {7, 100}), whole_shard("b", {30})};
  spec.rule = rule;
  spec.policy.workers = workers;
  return spec;
}
constexpr std::size_t kElements = 730;

std::vector<float> noise(std::uint64_t seed, std::size_t elements = kElements) {
  std::mt19937_64 random(seed);
  std::vector<float> values(elements);
  for (float& value : values) value = float(std::uniform_real_distribution<double>(-1, 1)(random));
  return values;
}

float start(std::size_t shard, std::size_t element) {
  return float(std::sin(double(1000 * shard + element)));
}

// Applies the same rule in plain memory to the weights and slots of all elements.
struct Plain {
  explicit Plain(const engine::UpdateRule& r) : rule(r) {
    for (std::size_t i = 0; i < 700; ++i) weights.push_back(start(0, i));
    for (std::size_t i = 0; i < 30; ++i) weights.push_back(start(1, i));
    for (auto& slot : slots) slot.resize(weights.size());
  }
  void update(const std::vector<float>& gradient, double rate) {
    engine::StepState state;
    state.step = step++;
    state.rate = rate;
    const auto* from = reinterpret_cast<const std::byte*>(gradient.data());
    auto* to = reinterpret_cast<std::byte*>(weights.data());
    engine::ReduceArguments a;
    a.from = {&from, 1};
    a.to = {&to, 1};
    a.count = weights.size();
    a.epilogue = engine::Epilogue::kUpdate;
    a.update.rule = &rule;
    a.update.state = &state;
    a.update.weight = to;
    for (std::size_t s = 0; s < rule.slots(); ++s)
      a.update.slots[s] = reinterpret_cast<std::byte*>(slots[s].data());
    ops->reduce(a);
  }
  std::unique_ptr<engine::Ops> ops = engine::host_devices()[0]->ops(engine::DType::kFloat32, {});
  engine::UpdateRule rule;
  std::int64_t step = 0;
  std::vector<float> weights;
  std::array<std::vector<float>, 2> slots;
};

TEST(Asynchronous, EachPushIsAnUpdateByTheRule) {
  for (const engine::UpdateRule& rule : {sgd_rule(), sgd_rule(0.9), adam_rule()}) {
    SmallServer server(job(2, rule), start);
    Plain plain(rule);
    EXPECT_EQ(server.weights(), plain.weights);
    for (std::uint64_t step = 0; step < 5; ++step) {
      const auto worker = std::uint32_t(step % 2);
      server.pull(worker);
      const ShardAnswer answer = server.push(server.order(worker, noise(step)));
      EXPECT_EQ(answer.what, PushOutcome::kApplied);
      EXPECT_EQ(answer.version, std::int64_t(step) + 1);
      plain.update(noise(step), 0.1);
      EXPECT_EQ(server.weights(), plain.weights);
    }
  }
}

TEST(Asynchronous, StalenessOfThreeWorkersInTurn) {
  SmallServer server(job(3));
  std::vector<std::uint64_t> staleness;
  for (std::uint32_t turn = 0; turn < 9; ++turn) {
    staleness.push_back(server.push(server.order(turn % 3, noise(turn))).staleness);
    server.pull(turn % 3);
  }
  EXPECT_THAT(staleness, ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 2));
  const ShardCounts counts = server.job().status().counts;
  EXPECT_EQ(counts.steps, 9u);
  EXPECT_EQ(counts.staleness_sum, 15u);
  EXPECT_EQ(counts.staleness_most, 2u);
  EXPECT_EQ(counts.staleness[0], 1u);
  EXPECT_EQ(counts.staleness[1], 1u);
  EXPECT_EQ(counts.staleness[2], 7u);
}

// A restored server may be behind the version that its workers have pulled.
TEST(Asynchronous, AGradientOfANewerVersionIsNotStale) {
  SmallServer server(job(1));
  server.pulled[0] = 7;
  const ShardAnswer answer = server.push(server.order(0, noise(1)));
  EXPECT_EQ(answer.what, PushOutcome::kApplied);
  EXPECT_EQ(answer.staleness, 0u);
  EXPECT_EQ(answer.version, 1);
}

TEST(Asynchronous, AllPushesOfAStepShareItsStaleness) {
  SmallServer server(job(2));
  PushOrder first = server.order(0, noise(1, 700)), last = server.order(0, noise(2, 30));
  first.parts = {{0, 0, 700}};
  first.last = false;
  last.parts = {{1, 0, 30}};
  server.push(server.order(1, noise(3)));
  EXPECT_EQ(server.push(first).staleness, 1u);
  server.push(server.order(1, noise(4)));
  const ShardAnswer answer = server.push(last);
  EXPECT_EQ(answer.staleness, 1u) << "it belongs to the step that began before";
  EXPECT_EQ(answer.version, 3);
  EXPECT_EQ(server.push(server.order(0, noise(5))).staleness, 3u) << "the next one did not pull";
}

TEST(Asynchronous, MessagesThatOvertakeTheLastOneBelongToItsStep) {
  SmallServer server(job(2));
  PushOrder first = server.order(0, noise(1, 700)), last = server.order(0, noise(2, 30));
  first.parts = {{0, 0, 700}};
  first.last = false;
  last.parts = {{1, 0, 30}};
  EXPECT_EQ(server.push(last).version, 1);
  const ShardAnswer answer = server.push(first);
  EXPECT_EQ(answer.what, PushOutcome::kApplied);
  EXPECT_EQ(answer.staleness, 0u);
  EXPECT_EQ(server.job().status().counts.steps, 1u);
  EXPECT_EQ(server.job().status().workers[0].lost, 0u);
}

TEST(Asynchronous, APushThatIsTooStaleChangesNothingAndTheWorkerIsTold) {
  JobSpec spec = job(2);
  spec.policy.most_staleness = 2;
  SmallServer server(spec, start);
  for (int i = 0; i < 3; ++i) {
    server.pull(1);
    server.push(server.order(1, noise(1)));
  }
  const std::vector<float> before = server.weights();
  PushOrder order = server.order(0, noise(2));
  order.want_weights = true;
  const ShardAnswer answer = server.push(order);
  EXPECT_EQ(answer.what, PushOutcome::kTooStale);
  EXPECT_EQ(answer.staleness, 3u);
  EXPECT_EQ(answer.version, 3);
  EXPECT_EQ(server.weights(), before);
  EXPECT_EQ(floats_of(answer.body), before) << "it goes on from these";
  EXPECT_EQ(server.job().status().counts.too_stale, 1u);
  server.pulled[0] = 1;
  EXPECT_EQ(server.push(server.order(0, noise(3))).what, PushOutcome::kApplied);
}

TEST(Asynchronous, StaleGradientsAreScaledDownWhereAsked) {
  JobSpec spec = job(2);
  spec.policy.scale_rate = true;
  SmallServer server(spec, start);
  Plain plain(spec.rule);
  server.push(server.order(0, noise(1)));
  server.push(server.order(1, noise(2), 0.3));
  plain.update(noise(1), 0.1);
  plain.update(noise(2), 0.3 / 2);
  EXPECT_EQ(server.weights(), plain.weights);
}

// For f(w) = w^2 / 2 and gradients nine versions old, 0.3 is too high a rate, but not 0.3 / 9.
TEST(Asynchronous, ABowlWithDelayDivergesUnlessTheRateIsScaled) {
  const auto run = [](bool scale) {
    JobSpec spec;
    spec.shards = {whole_shard("w", {1})};
    spec.policy.workers = 9;
    spec.policy.scale_rate = scale;
    SmallServer server(spec, [](std::size_t, std::size_t) { return 1.0f; });
    std::vector<float> seen(9, 1.0f);
    for (std::uint32_t turn = 0; turn < 1000; ++turn) {
      const std::uint32_t worker = turn % 9;
      const ShardAnswer answer =
          server.push(server.order(worker, std::vector<float>{seen[worker]}, 0.3));
      EXPECT_EQ(answer.staleness, std::min(turn, 8u));
      server.pull(worker);
      seen[worker] = server.weights()[0];
    }
    return std::abs(server.weights()[0]);
  };
  EXPECT_GT(run(false), 1e3f);
  EXPECT_LT(run(true), 1e-3f);
}

// Servers apply a push once if the worker repeats it after a lost answer.
TEST(Asynchronous, ARepeatedPushIsAppliedOnce) {
  for (const bool synchronous : {false, true}) {
    JobSpec spec = job(1, sgd_rule(0.9));
    spec.policy.synchronous = synchronous;
    SmallServer server(spec, start);
    Plain plain(spec.rule);
    for (std::uint64_t step = 0; step < 20; ++step) {
      server.pull(0);
      const PushOrder order = server.order(0, noise(step));
      EXPECT_EQ(server.push(order).what, PushOutcome::kApplied);
      const ShardAnswer again = server.push(order);
      EXPECT_EQ(again.what, PushOutcome::kRepeated);
      EXPECT_EQ(again.version, std::int64_t(step) + 1);
      plain.update(noise(step), 0.1);
    }
    EXPECT_EQ(server.weights(), plain.weights);
    EXPECT_EQ(server.job().status().counts.repeated, 20u);
    EXPECT_EQ(server.job().status().counts.applied, 20u);
  }
}

TEST(Asynchronous, TheAnswerCarriesTheWeightsAfterTheUpdate) {
  SmallServer server(job(1), start);
  PushOrder order = server.order(0, noise(1));
  order.want_weights = true;
  const ShardAnswer answer = server.push(order);
  EXPECT_EQ(floats_of(answer.body), server.weights());
  const std::vector<float> then = floats_of(answer.body);
  server.push(server.order(0, noise(2)));
  EXPECT_EQ(floats_of(answer.body), then) << "what was given stays as it was";
  EXPECT_NE(server.weights(), then);
}

// Adam's steps count the updates of each element.
TEST(Asynchronous, PartsOfAShardHaveStepsOfTheirOwn) {
  SmallServer server(job(1, adam_rule()), start);
  Plain often(adam_rule()), seldom(adam_rule());
  for (std::uint64_t step = 0; step < 6; ++step) {
    server.pull(0);
    std::vector<float> gradient = noise(step);
    if (step % 3 != 0) gradient.resize(250);
    PushOrder order = server.order(0, gradient);
    if (step % 3 != 0) order.parts = {{0, 0, 250}};
    server.push(order);
    often.update(noise(step), 0.1);
    if (step % 3 == 0) seldom.update(noise(step), 0.1);
  }
  const std::vector<float> weights = server.weights();
  for (std::size_t i = 0; i < kElements; ++i)
    ASSERT_EQ(weights[i], (i < 250 ? often : seldom).weights[i]) << i;
}

TEST(Asynchronous, HalfPrecisionOnTheWireIsRoundedOnceEachWay) {
  SmallServer server(job(1), start);
  Plain plain(sgd_rule());
  PushOrder order = server.order(0, {});
  order.bfloat16 = true;
  order.want_weights = true;
  order.body = narrowed(slices_of(noise(1)), engine::DType::kFloat32);
  const ShardAnswer answer = server.push(order);
  std::vector<float> rounded = noise(1);
  for (float& value : rounded) value = engine::BFloat16(value);
  plain.update(rounded, 0.1);
  EXPECT_EQ(server.weights(), plain.weights);
  ASSERT_EQ(rpc::Message({.body = answer.body}).body_bytes(), 2 * kElements);
  ArrayReader reader(answer.body, true);
  for (const float weight : plain.weights) {
    const auto* value = reinterpret_cast<const float*>(reader.next(1, engine::DType::kFloat32));
    ASSERT_EQ(*value, float(engine::BFloat16(weight)));
  }
}

JobSpec synchronous(std::uint32_t workers, std::uint32_t aggregate,
                    engine::UpdateRule rule = sgd_rule(0.9)) {
  JobSpec spec = job(workers, rule);
  spec.policy.synchronous = true;
  spec.policy.aggregate = aggregate;
  return spec;
}

// The gradients of four workers sum to that of the whole batch, in any order of arrival.
TEST(Synchronous, AllOfThemAreOneLargeBatchWhoeverComesFirst) {
  std::vector<std::uint32_t> workers{0, 1, 2, 3};
  std::vector<float> first_result;
  Plain plain(adam_rule());
  for (std::uint64_t step = 0; step < 3; ++step) {
    std::vector<float> whole(kElements);
    for (const std::uint32_t worker : workers)
      for (std::size_t i = 0; i < kElements; ++i) whole[i] += noise(10 * step + worker)[i] / 4;
    plain.update(whole, 0.01);
  }
  do {
    SmallServer server(synchronous(4, 0, adam_rule()), start);
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < 4; ++i) {
        std::vector<float> gradient = noise(10 * step + workers[i]);
        for (float& value : gradient) value /= 4;
        server.pull(workers[i]);
        const ShardAnswer answer = server.push(server.order(workers[i], gradient, 0.01));
        EXPECT_EQ(answer.what, i == 3 ? PushOutcome::kApplied : PushOutcome::kKept);
        EXPECT_EQ(answer.version, std::int64_t(step) + (i == 3));
      }
    }
    const std::vector<float> weights = server.weights();
    if (first_result.empty()) first_result = weights;
    ASSERT_EQ(weights, first_result) << "the order of arrival shows";
    for (std::size_t i = 0; i < kElements; ++i) ASSERT_NEAR(weights[i], plain.weights[i], 1e-6);
  } while (std::next_permutation(workers.begin(), workers.end()));
}

TEST(Synchronous, OfThreeGradientsTwoMakeAnUpdateAndTheThirdIsLate) {
  SmallServer server(synchronous(3, 2), start);
  Plain plain(sgd_rule(0.9));
  for (std::uint32_t step = 0; step < 4; ++step) {
    const std::uint32_t a = step % 3, b = (step + 1) % 3, slow = (step + 2) % 3;
    for (const std::uint32_t worker : {a, b, slow}) server.pull(worker);
    EXPECT_EQ(server.push(server.order(b, noise(step))).what, PushOutcome::kKept);
    EXPECT_EQ(server.push(server.order(a, noise(step + 50))).what, PushOutcome::kApplied);
    std::vector<float> sum = noise(step);
    for (std::size_t i = 0; i < kElements; ++i) sum[i] = (sum[i] + noise(step + 50)[i]) * 1.5f;
    plain.update(sum, 0.1);
    const std::uint64_t before = server.job().version();
    const std::vector<float> weights = server.weights();
    const ShardAnswer late = server.push(server.order(slow, noise(step + 100)));
    EXPECT_EQ(late.what, PushOutcome::kLate);
    EXPECT_EQ(late.staleness, 1u);
    EXPECT_EQ(late.version, std::int64_t(before));
    EXPECT_EQ(server.weights(), weights);
    for (std::size_t i = 0; i < kElements; ++i) ASSERT_NEAR(weights[i], plain.weights[i], 1e-6);
  }
  EXPECT_EQ(server.job().status().counts.late, 4u);
  EXPECT_EQ(server.job().status().counts.kept, 4u);
  EXPECT_EQ(server.job().status().counts.applied, 4u);
}

// A worker may be in time for one part of a step and late for another.
TEST(Synchronous, TheVersionRisesWithTheLastPart) {
  SmallServer server(synchronous(2, 0));
  const auto part = [&](std::uint32_t worker, ShardRange which) {
    PushOrder order = server.order(worker, noise(worker, which.size()));
    order.parts = {which};
    return server.push(order);
  };
  EXPECT_EQ(part(0, {0, 0, 400}).what, PushOutcome::kKept);
  EXPECT_EQ(part(1, {0, 0, 400}).what, PushOutcome::kApplied);
  EXPECT_EQ(part(1, {0, 400, 700}).what, PushOutcome::kKept);
  const std::uint64_t before = server.store.checksum();
  EXPECT_NE(refused([&] { part(0, {0, 300, 700}); }, engine::Code::kInvalid), "");
  EXPECT_NE(refused([&] { part(0, {0, 0, 700}); }, engine::Code::kInvalid), "");
  EXPECT_NE(refused([&] { part(0, {0, 500, 600}); }, engine::Code::kInvalid), "");
  EXPECT_EQ(server.store.checksum(), before);
  EXPECT_EQ(part(1, {0, 400, 700}).what, PushOutcome::kRepeated) << "the worker began again";
  EXPECT_EQ(part(0, {1, 0, 30}).what, PushOutcome::kKept);
  EXPECT_EQ(part(0, {0, 400, 700}).version, 0);
  EXPECT_EQ(part(1, {1, 0, 30}).version, 1);
  EXPECT_EQ(server.job().status().waiting_parts, 0u);
}

TEST(Synchronous, AnAnswerWithWeightsWaitsForTheOthers) {
  SmallServer server(synchronous(2, 0));
  std::vector<std::pair<int, std::vector<float>>> answers;
  for (std::uint32_t worker = 0; worker < 2; ++worker) {
    PushOrder order = server.order(worker, noise(worker));
    order.want_weights = true;
    server.store.push("job", order, nullptr, [&, worker](ShardAnswer answer) {
      answers.emplace_back(worker, floats_of(answer.body));
    });
    EXPECT_EQ(answers.size(), worker == 0 ? 0u : 2u);
  }
  EXPECT_EQ(answers[0].first, 0);
  EXPECT_EQ(answers[0].second, server.weights());
  EXPECT_EQ(answers[1].second, server.weights());
}

TEST(Synchronous, APushForAStepThatIsNotThereIsRefused) {
  SmallServer server(synchronous(2, 0));
  PushOrder order = server.order(0, noise(1));
  order.step = 1;
  EXPECT_NE(refused([&] { server.push(order); }, engine::Code::kInvalid), "");
}

JobSpec embedding(std::uint32_t workers, engine::UpdateRule rule) {
  JobSpec spec;
  spec.shards = {whole_shard("embedding", {1000, 8})};
  spec.shards[0].first_row = 100;
  spec.shards[0].rows = 50;
  spec.shards[0].sparse = true;
  spec.rule = rule;
  spec.policy.workers = workers;
  return spec;
}

PushOrder push_rows(SmallServer& server, std::uint32_t worker, std::vector<std::uint64_t> rows,
                    std::uint64_t seed) {
  PushOrder order = server.order(worker, noise(seed, rows.size() * 8));
  order.rows = ShardRows{0, std::move(rows)};
  return order;
}

// Adam moves every weight that it updates, whatever the gradient. So only touched rows move, and
// each counts its own steps.
TEST(Rows, OnlyThoseThatWerePushedAreUpdated) {
  SmallServer server(embedding(1, adam_rule()), start);
  std::vector<std::uint64_t> all(50);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = 100 + i;
  const std::vector<float> before = server.rows(0, all);
  server.push(push_rows(server, 0, {103, 149}, 1));
  server.push(push_rows(server, 0, {103}, 2));
  server.push(push_rows(server, 0, {120, 149}, 3));
  const std::vector<float> after = server.rows(0, all);
  Plain plain(adam_rule());  // its first elements hold row 103
  for (std::size_t i = 0; i < 8; ++i) plain.weights[i] = before[24 + i];
  for (const std::uint64_t seed : {1, 2}) {
    std::vector<float> gradient(kElements);
    std::copy_n(noise(seed, 16).begin(), 8, gradient.begin());
    plain.update(gradient, 0.1);
  }
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(after[24 + i], plain.weights[i]);
  for (std::size_t row = 0; row < 50; ++row) {
    const bool touched = row == 3 || row == 20 || row == 49;
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(after[row * 8 + i] != before[row * 8 + i], touched) << row;
  }
  const ShardCounts counts = server.job().status().counts;
  EXPECT_EQ(counts.rows_pushed, 5u);
  EXPECT_EQ(counts.bytes_pushed, 5u * 8 * 4);
  EXPECT_EQ(counts.rows_pulled, 100u);
  EXPECT_EQ(counts.bytes_pulled, 100u * 8 * 4);
}

TEST(Rows, OfAllWorkersAreAddedAndThenUpdatedOnce) {
  JobSpec spec = embedding(3, sgd_rule());
  spec.policy.synchronous = true;
  SmallServer server(spec);
  EXPECT_EQ(server.push(push_rows(server, 2, {101, 105}, 1)).what, PushOutcome::kKept);
  EXPECT_EQ(server.push(push_rows(server, 0, {100, 105, 149}, 2)).what, PushOutcome::kKept);
  const ShardAnswer last = server.push(push_rows(server, 1, {}, 3));
  EXPECT_EQ(last.what, PushOutcome::kApplied) << "it touched none, and says so";
  EXPECT_EQ(last.version, 1);
  const std::vector<float> rows = server.rows(0, {100, 101, 102, 105, 149});
  const std::vector<float> a = noise(1, 16), b = noise(2, 24);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(rows[i], -0.1f * b[i]);
    EXPECT_FLOAT_EQ(rows[8 + i], -0.1f * a[i]);
    EXPECT_EQ(rows[16 + i], 0.0f);
    EXPECT_NEAR(rows[24 + i], -0.1f * (a[8 + i] + b[8 + i]), 1e-7);
    EXPECT_FLOAT_EQ(rows[32 + i], -0.1f * b[16 + i]);
  }
}

// Concurrent pushes, pulls and saves lose no update. Sums of ones are exact, so a loss shows.
TEST(Threads, PushAndPullAtOnceAndNothingIsLost) {
  for (const bool synchronous : {false, true}) {
    constexpr std::uint32_t kWorkers = 4, kSteps = 40;
    JobSpec spec = job(kWorkers);
    spec.policy.synchronous = synchronous;
    SmallServer server(spec);
    const std::vector<float> one(kElements, 1.0f);
    std::vector<std::thread> threads;
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) {
      threads.emplace_back([&, worker] {
        std::vector<float> halves;
        for (std::uint32_t step = 0; step < kSteps; ++step) {
          if (!synchronous) server.pull(worker);
          if (synchronous) server.pulled[worker] = step;
          PushOrder order = server.order(worker, one, -1);
          order.want_weights = true;
          std::promise<std::vector<float>> weights;
          server.store.push("job", order, nullptr,
                            [&](ShardAnswer answer) { weights.set_value(floats_of(answer.body)); });
          halves = weights.get_future().get();
          EXPECT_EQ(server.push(order).what, PushOutcome::kRepeated);
          for (const float value : halves) {
            if (synchronous) {
              ASSERT_EQ(value, float(kWorkers * (step + 1)));
            }
          }
        }
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const TrainingShards::Snapshot snapshot = server.job().snapshot(1);
        const std::vector<float> now = floats_of(snapshot.shards[0].weights);
        for (const float value : now) ASSERT_EQ(value, now[0]) << "a push was torn";
        if (!synchronous) {
          ASSERT_EQ(now[0], float(snapshot.version));
        }
      }
    });
    for (std::thread& thread : threads) thread.join();
    for (const float weight : server.weights()) ASSERT_EQ(weight, float(kWorkers * kSteps));
  }
}

}  // namespace shard_updates_test
}  // namespace lockstep::test
