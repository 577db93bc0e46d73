// SPDX-License-Identifier: MIT
// Training with parameter servers, all in this process: the laws, and recovery from deaths.
#include "strategies/parameter_server/worker/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <thread>

#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "test/strategies/parameter_server/rpc/faulty_connection.h"
#include "test/strategies/parameter_server/worker/mortal_servers.h"
#include "test/strategies/parameter_server/worker/parameter_server_fixture.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace parameter_server_test {

using namespace std::chrono_literals;
using namespace strategies;
using engine::Code;
using engine::Error;
using testing::HasSubstr;

namespace fs = std::filesystem;

TEST_F(ParameterServerTest, OneAsynchronousWorkerIsOneReplicaBitForBit) {
  for (const Job& job : {momentum_job(), adam_job(), decay_job()}) {
    const Outcome one = train_mirrored(job, replicas(1));
    for (const int servers : {1, 2, 3}) {
      const Outcome other = train_with(servers, 1, job);
      EXPECT_EQ(difference(one.weights[0], other.weights[0]), 0) << servers << " servers";
      EXPECT_EQ(one.losses, other.losses);
      EXPECT_EQ(other.history.steps, 20);
    }
  }
}

TEST_F(ParameterServerTest, CheckpointsByTimeChangeNoBits) {
  for (const bool synchronous : {false, true}) {
    const auto change = [&](ParameterServerOptions& o) { o.updates.synchronous = synchronous; };
    const int workers = synchronous ? 2 : 1;
    Job job = momentum_job();
    const Outcome plain = train_with(2, workers, job, change);
    job.checkpoints = folder_;
    job.every_seconds = 1e-9;
    const Outcome saved = train_with(2, workers, job, change);
    EXPECT_EQ(saved.weights, plain.weights);
    EXPECT_EQ(saved.history.interrupted, 0);
    const auto found = std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
    EXPECT_EQ(found, 3);  // the last saves; the lock is gone
    fs::remove_all(folder_);
  }
}

// Training continues long before the deadline.
TEST_F(ParameterServerTest, SynchronousTrainingGoesOnWhereAServerDiesWhileItSaves) {
  Job job = momentum_job();
  const auto synchronous = [](ParameterServerOptions& o) { o.updates.synchronous = true; };
  const Outcome plain = train_with(2, 2, job, synchronous);
  job.checkpoints = folder_;
  job.every = 5;
  job.retries = 1;
  MortalServers servers(2, *device_, engine::DType::kFloat64);
  std::atomic<int> saves = 0;
  servers.on_call = [&](std::size_t server, std::string_view method) {
    if (method != "Save" || server != 1 || ++saves != 2) return;
    servers.kill(1);
    servers.start(1);
  };
  ParameterServerOptions mine = options(servers, 2, 2);
  synchronous(mine);
  const auto begin = engine::Clock::now();
  ParameterServer strategy(mine);
  EXPECT_EQ(train(strategy, job, nullptr).restores, 1);
  EXPECT_EQ(strategy.weights(), plain.weights[0]);
  EXPECT_LT(engine::Clock::now() - begin, mine.deadline / 2);
}

// One worker has the same bits with prefetched weights and without, even if staleness would reduce
// the rate. With prefetch it pulls only at the beginning. Without, it also pulls in each step the
// weights whose gradients left before backward ended.
TEST_F(ParameterServerTest, WeightsComeWithTheAnswersToGradients) {
  const Job job = momentum_job();
  std::map<bool, int> pulls;
  std::map<bool, Outcome> outcomes;
  for (const bool prefetch : {false, true}) {
    MortalServers servers(2, *device_, engine::DType::kFloat64);
    std::atomic<int> count = 0;
    servers.on_call = [&](std::size_t, std::string_view method) { count += method == "Pull"; };
    ParameterServerOptions mine = options(servers, 2);
    mine.updates.prefetch = prefetch;
    mine.updates.scale_rate = true;
    ParameterServer strategy(mine);
    train(strategy, job, &outcomes[prefetch]);
    pulls[prefetch] = count;
    outcomes[prefetch].weights.push_back(strategy.weights());
    EXPECT_EQ(strategy.counts().staleness_sum, 0u);
  }
  EXPECT_EQ(outcomes[false].losses, outcomes[true].losses);
  EXPECT_EQ(difference(outcomes[false].weights[0], outcomes[true].weights[0]), 0);
  const int segments = 5;  // 20 steps; 39 examples, batches of 11
  EXPECT_EQ(pulls[true] % segments, 0);
  const int all = pulls[true] / segments;  // chunks
  EXPECT_EQ((pulls[false] - pulls[true]) % (job.steps - segments), 0);
  const std::int64_t early = (pulls[false] - pulls[true]) / (job.steps - segments);
  EXPECT_GT(early, 0);
  EXPECT_LT(early, all);
}

// Staleness counts the pushes of other workers while a worker's answers are in flight.
TEST_F(ParameterServerTest, PrefetchedWeightsOfSeveralWorkersAreAsStaleAsTheyAre) {
  for (const bool prefetch : {false, true}) {
    const Outcome outcome = train_with(2, 3, momentum_job(200), [&](auto& options) {
      options.updates.prefetch = prefetch;
      options.updates.warm_up = 0;
    });
    EXPECT_LT(outcome.losses.back(), outcome.losses.front());
    EXPECT_GT(counts_.staleness_sum, 0u);
    EXPECT_LE(counts_.staleness_most, 200u);
  }
}

TEST_F(ParameterServerTest, MicroBatchesArePushedOnce) {
  Job job = momentum_job();
  job.accumulate = 3;
  const Outcome one = train_mirrored(job, replicas(1));
  const Outcome other = train_with(2, 1, job);
  EXPECT_EQ(difference(one.weights[0], other.weights[0]), 0);
}

TEST_F(ParameterServerTest, SynchronousWorkersAreReplicas) {
  for (const Job& job : {momentum_job(), adam_job()}) {
    const Outcome one = train_mirrored(job, replicas(3));
    const Outcome other =
        train_with(2, 3, job, [](auto& options) { options.updates.synchronous = true; });
    EXPECT_LT(difference(one.weights[0], other.weights[0]), 1e-12);
    const Outcome again =
        train_with(2, 3, job, [](auto& options) { options.updates.synchronous = true; });
    EXPECT_EQ(difference(again.weights[0], other.weights[0]), 0) << "whoever comes first";
  }
}

// The law also holds if steps are reported together and shares are not whole batches.
TEST_F(ParameterServerTest, SynchronousStepsHaveTheLossOfTheWholeBatch) {
  for (const std::int64_t together : {1, 3}) {
    Job job = momentum_job();
    job.steps_per_execution = together;
    std::vector<std::size_t> examples;
    job.on_step = [&](const engine::StepReport& report) { examples.push_back(report.examples); };
    const Outcome one = train_mirrored(job, replicas(1));
    const std::vector<std::size_t> whole = std::exchange(examples, {});
    const Outcome other =
        train_with(2, 3, job, [](auto& options) { options.updates.synchronous = true; });
    EXPECT_EQ(examples, whole);
    EXPECT_LT(difference(one.losses, other.losses), 1e-12);
  }
}

TEST_F(ParameterServerTest, AsynchronousWorkersShareTheStepsAndLearn) {
  const Outcome outcome = train_with(2, 3, momentum_job(200));
  EXPECT_EQ(outcome.history.steps, 200);
  EXPECT_LT(outcome.losses.size(), 200u) << "one worker's";
  EXPECT_LT(outcome.losses.back(), outcome.losses.front());
}

// A worker whose steps take many times as long makes few of them, and the others make the rest.
// Workers synchronize at the end of each epoch, here 39 steps.
TEST_F(ParameterServerTest, ASlowWorkerHoldsUpNobody) {
  Job job = momentum_job(39);
  job.batch = 1;
  job.optimizer = engine::optim::sgd({.rate = 0.001});
  const auto begin = engine::Clock::now();
  train_with(2, 1, job);
  const auto pause = 10 * (engine::Clock::now() - begin) / job.steps;
  job.on_step = [pause](const auto&) { std::this_thread::sleep_for(pause); };  // first worker's
  job.steps = 120;
  const Outcome outcome = train_with(2, 3, job);
  EXPECT_EQ(outcome.history.steps, 120);
  EXPECT_LT(outcome.losses.size(), 30u) << "a third were its share";
}

// The first worker pauses in each step, and the others do not wait for it.
TEST_F(ParameterServerTest, TheFirstOfTheGradientsMakeAnUpdate) {
  Job job = momentum_job(60);
  job.on_step = [](const auto&) { std::this_thread::sleep_for(5ms); };
  const Outcome outcome = train_with(2, 3, job, [](auto& options) {
    options.updates.synchronous = true;
    options.updates.aggregate = 2;
  });
  EXPECT_EQ(outcome.history.steps, 60);
  EXPECT_GT(counts_.late, 0u);
  for (const double weight : outcome.weights[0]) ASSERT_TRUE(std::isfinite(weight));
}

// One worker makes the warm-up steps, so during warm-up several workers equal one replica.
TEST_F(ParameterServerTest, TheFirstStepsAreOneWorkersAlone) {
  const Job job = momentum_job();
  const auto weights = [&](std::int64_t warm_up) {
    return train_with(2, 3, job, [&](auto& o) { o.updates.warm_up = warm_up; }).weights[0];
  };
  const std::vector<double> one = train_mirrored(job, replicas(1)).weights[0];
  EXPECT_EQ(difference(one, weights(job.steps)), 0);
  EXPECT_GT(difference(one, weights(0)), 0);
}

// Calls that are lost, or whose replies are, are repeated. Servers count them, and the weights do
// not change.
TEST_F(ParameterServerTest, LostCallsAndRepliesLeaveNoTrace) {
  for (const bool synchronous : {false, true}) {
    const int workers = synchronous ? 3 : 1;
    MortalServers servers(2, *device_, engine::DType::kFloat64);
    ParameterServerOptions mine = options(servers, 2, workers);
    mine.updates.synchronous = synchronous;
    std::atomic<int> lost = 0;
    mine.connect = [&](std::size_t server) {
      return std::make_unique<FaultyConnection>(servers.connect(server), [&](std::size_t call) {
        const Fault::What what = call % 11 == 5   ? Fault::What::kNotSent
                                 : call % 17 == 9 ? Fault::What::kReplyLost
                                                  : Fault::What::kNone;
        lost += what == Fault::What::kReplyLost;
        return Fault{what};
      });
    };
    std::uint64_t repeated = 0;
    Outcome outcome;
    {
      ParameterServer strategy(mine);
      train(strategy, momentum_job(), &outcome);
      outcome.weights.push_back(strategy.weights());
      for (std::size_t server = 0; server < 2; ++server)
        repeated += servers.store(server).job("train")->status().counts.repeated;
    }
    EXPECT_GT(lost, 0);
    EXPECT_GT(repeated, 0u);
    const Outcome whole = synchronous ? train_with(2, workers, momentum_job(),
                                                   [](auto& o) { o.updates.synchronous = true; })
                                      : train_mirrored(momentum_job(), replicas(1));
    EXPECT_EQ(difference(whole.weights[0], outcome.weights[0]), 0) << synchronous;
  }
}

TEST_F(ParameterServerTest, Bfloat16OnTheWireHalvesTheBytes) {
  train_with(2, 1, momentum_job());
  const ServerWorker::Counts whole = counts_;
  const Outcome outcome =
      train_with(2, 1, momentum_job(), [](auto& options) { options.updates.bfloat16 = true; });
  EXPECT_EQ(counts_.traffic.bytes_pushed * 4, whole.traffic.bytes_pushed) << "float64 here";
  const Outcome one = train_mirrored(momentum_job(), replicas(1));
  EXPECT_LT(relative(one.weights[0], outcome.weights[0]), 0.01);
  EXPECT_GT(difference(one.weights[0], outcome.weights[0]), 0);
}

TEST_F(ParameterServerTest, TwoCallsOfFitAndEvaluationsInBetween) {
  for (const bool synchronous : {false, true}) {
    MortalServers servers(2, *device_, engine::DType::kFloat64);
    ParameterServerOptions mine = options(servers, 2, 2);
    mine.updates.synchronous = synchronous;
    ParameterServer strategy(mine);
    engine::Trainer trainer(strategy, small_graph({}), engine::optim::sgd({.rate = 0.01}));
    engine::FitOptions fit;
    fit.epochs = 2;
    fit.global_batch = 11;
    const Table data = small_data();
    fit.test = &data;
    const engine::History first = trainer.fit(data, fit);
    EXPECT_EQ(first.steps, 8);
    EXPECT_EQ(first.test->examples, 39u);
    const engine::History second = trainer.fit(data, fit);
    EXPECT_EQ(second.steps, 8);
    EXPECT_LT(second.test->loss, first.test->loss);
    EXPECT_EQ(trainer.evaluate(data).loss, second.test->loss);
  }
}

TEST_F(ParameterServerTest, CheckpointsOfTwoServersGoOnInThreeAndInReplicas) {
  for (Job kind : {momentum_job(), adam_job()}) {
    kind.optimizer.schedule = engine::optim::schedule("constant");
    const Outcome whole = train_mirrored(kind, replicas(1));
    const auto folder = [&](int i) { return fmt::format("{}/{}", folder_, i); };
    Job half = kind;
    half.steps = 9;
    for (int i = 0; i < 2; ++i) {
      half.checkpoints = folder(i);
      train_with(2, 1, half);
    }
    Job rest = kind;
    rest.checkpoints = folder(0);
    const Outcome three = train_with(3, 1, rest);
    EXPECT_EQ(difference(whole.weights[0], three.weights[0]), 0);
    rest.checkpoints = folder(1);
    const Outcome mirrored = train_mirrored(rest, replicas(1));
    EXPECT_EQ(difference(whole.weights[0], mirrored.weights[0]), 0);
    rest.steps = 24;  // and back
    const Outcome back = train_with(2, 1, rest);
    EXPECT_EQ(back.history.first_step, 20);
    fs::remove_all(folder(0));
    fs::remove_all(folder(1));
  }
}

// Four strategies read each other's checkpoints: one replica, four threads, two hosts of two, and
// two workers with two servers. That makes sixteen pairs.
TEST_F(ParameterServerTest, AnyStrategyReadsWhatAnyOtherWroteSlotsIncluded) {
  using Way = std::function<Outcome(const Job&)>;
  const std::vector<std::pair<std::string, Way>> ways = {
      {"one", [](const Job& job) { return train_mirrored(job, replicas(1)); }},
      {"mirrored 4", [](const Job& job) { return train_mirrored(job, replicas(4)); }},
      {"2 x 2",
       [](const Job& job) {
         return train_collective(job, replicas(2), {0, 1});
       }},
      {"servers", [this](const Job& job) {
         return train_with(2, 2, job, [](auto& options) { options.updates.synchronous = true; });
       }}};
  Job whole = adam_job();
  whole.dropout = 0.2;
  whole.optimizer.schedule = engine::optim::schedule("constant");
  whole.steps = 12;
  const Outcome undisturbed = ways[0].second(whole);
  for (const auto& [writer, write] : ways) {
    const std::string written = folder_ + "/written";
    Job first = whole;
    first.steps = 9;
    first.checkpoints = written;
    write(first);
    for (const auto& [reader, read] : ways) {
      const std::string copy = folder_ + "/copy";
      fs::copy(written, copy, fs::copy_options::recursive);
      Job rest = whole;
      rest.checkpoints = copy;
      const Outcome resumed = read(rest);
      EXPECT_EQ(resumed.history.first_step, 9) << writer << " to " << reader;
      EXPECT_LT(difference(resumed.weights[0], undisturbed.weights[0]), 1e-10)
          << writer << " to " << reader;
      fs::remove_all(copy);
    }
    fs::remove_all(written);
  }
}

TEST_F(ParameterServerTest, AVoteEndsTheRunAfterWholeSteps) {
  for (const bool synchronous : {false, true}) {
    std::atomic<int> interrupt = 0;
    Job job = momentum_job(1000);
    job.interrupt = &interrupt;
    job.checkpoints = fmt::format("{}/{}", folder_, synchronous);
    job.on_step = [&](const engine::StepReport& report) {
      if (report.step >= 10) interrupt = 15;
    };
    const Outcome outcome =
        train_with(2, 3, job, [&](auto& options) { options.updates.synchronous = synchronous; });
    EXPECT_EQ(outcome.history.interrupted, 15);
    EXPECT_LT(outcome.history.steps, 1000);
    interrupt = 0;
    job.on_step = {};
    job.steps = outcome.history.steps + 5;
    const Outcome rest =
        train_with(2, 3, job, [&](auto& options) { options.updates.synchronous = synchronous; });
    EXPECT_EQ(rest.history.first_step, outcome.history.steps);
    EXPECT_EQ(rest.history.steps, job.steps);
  }
}

// The chief's workers end an evaluation together, and the servers' variables are saved.
TEST_F(ParameterServerTest, AnEvaluationEndsInItsMidstAndItsStepIsSaved) {
  std::atomic<int> interrupt = 0;
  const Interrupting test(interrupt);
  Job job = momentum_job(20);
  job.interrupt = &interrupt;
  job.checkpoints = folder_;
  job.every = 1000;
  job.test = &test;
  const Outcome outcome = train_with(2, 3, job);
  EXPECT_EQ(outcome.history.interrupted, 15);
  EXPECT_EQ(outcome.history.steps, 4) << "an epoch";
  EXPECT_FALSE(outcome.history.test.has_value());
  EXPECT_LT(test.read(), 500);
  job.test = nullptr;
  interrupt = 0;
  EXPECT_EQ(train_with(2, 3, job).history.first_step, 4);
}

TEST_F(ParameterServerTest, WhatCannotBeIsRefused) {
  MortalServers servers(1, *device_, engine::DType::kFloat64);
  const auto refused = [&](auto change) -> std::string {
    ParameterServerOptions mine = options(servers, 1);
    change(mine);
    try {
      ParameterServer strategy(mine);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused([](auto& o) { o.updates.aggregate = 1; }),
              HasSubstr("synchronous training alone"));
  EXPECT_THAT(refused([](auto& o) { o.updates.synchronous = true, o.updates.aggregate = 2; }),
              HasSubstr("2 workers cannot be awaited of 1"));
  EXPECT_THAT(refused([](auto& o) { o.updates.synchronous = true, o.updates.most_staleness = 1; }),
              HasSubstr("never stale"));
  EXPECT_THAT(refused([](auto& o) { o.first_worker = 1; }), HasSubstr("are none of 1"));
  EXPECT_THAT(refused([](auto& o) { o.servers = 0; }), HasSubstr("at least one server"));
  for (const engine::DType dtype : {engine::DType::kBFloat16, engine::DType::kFloat16})
    EXPECT_THAT(refused([&](auto& o) { o.dtype = dtype; }),
                HasSubstr(fmt::format("float32 or float64, not in {}", engine::name(dtype))));
  Job clipped = momentum_job();
  clipped.optimizer = engine::optim::sgd({.rate = 0.1, .clip_norm = 1});
  EXPECT_THROW(train_with(1, 1, clipped), Error);
  Job layers = momentum_job();
  layers.optimizer = engine::optim::lars();
  try {
    train_with(1, 1, layers);
    ADD_FAILURE() << "servers took lars";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter_server: lars needs the norms"));
  }
  Job centred = momentum_job();
  centred.centre = true;
  try {
    train_with(1, 1, centred);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("centre.forward"));
  }
}

// The law also holds in float32 with the optimized kernels, and for shards of more than one chunk.
TEST_F(ParameterServerTest, OnTheProcessorTooAndManyWorkersAtOnce) {
  const auto devices = engine::host_devices();
  engine::Device& cpu = engine::find(devices, engine::parse_device_id("cpu"));
  engine::GraphSpec graph("large", {20});
  graph.then("dense1", engine::dense(3000));
  graph.then("dense2", engine::dense(700));  // 2.1 million
  graph.then("relu", engine::relu());
  graph.then("dense3", engine::dense(5));
  graph.set_loss(engine::mean_squared_error());
  MortalServers servers(2, cpu, engine::DType::kFloat32);
  ParameterServerOptions mine = options(servers, 2, 4);
  mine.devices.assign(4, &cpu);
  mine.chunk_bytes = std::size_t(1) << 20;
  mine.placement.partitioner = WholeVariables{};
  ParameterServer strategy(mine);
  engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.001, .momentum = 0.9}));
  engine::FitOptions fit;
  fit.steps = 60;
  fit.global_batch = 11;
  EXPECT_EQ(trainer.fit(small_data(), fit).steps, 60);
  for (const double weight : strategy.weights()) ASSERT_TRUE(std::isfinite(weight));
}

}  // namespace parameter_server_test
}  // namespace lockstep::test
