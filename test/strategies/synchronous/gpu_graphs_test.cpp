// SPDX-License-Identifier: MIT
// Steps that a GPU replays from a graph equal the steps that the host would queue. The GPU is a
// fake one: captured work of several streams runs in any order that the captured waits allow. A
// wait for work outside of the capture invalidates it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "engine/data/sets.h"
#include "models/wide_deep.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace gpu_graphs_test {

using engine::Code;
using engine::DType;

struct Setting {
  const char* name;
  std::vector<std::size_t> gpus = {0};  // one entry per replica
  DType dtype = DType::kFloat32;
  engine::optim::Optimizer optimizer = engine::optim::sgd({.rate = 0.02, .momentum = 0.9});
  int accumulate = 1;
  double dropout = 0;
  bool batch_norm = false;
  const char *algorithm = "auto", *update = "auto";
  bool thread = false;  // use a communication thread
  int prefetch = 0;
};

struct Training {
  std::vector<double> losses;
  std::int64_t repeated = 0;
  std::string graphs = {};  // log lines about graphs
  std::vector<std::vector<double>> weights = {};
};

Job job_of(const Setting& s) {
  Job job;
  job.steps = 13;  // the fourth and the eighth batch are short
  job.dtype = s.dtype;
  job.optimizer = s.optimizer;
  job.accumulate = s.accumulate;
  job.dropout = s.dropout;
  job.batch_norm = s.batch_norm;
  job.prefetch = s.prefetch;
  return job;
}

strategies::SynchronousOptions options_of(engine::cuda::FakeDevices& gpus, const Setting& s,
                                          std::string graphs) {
  strategies::SynchronousOptions options = replicas(int(s.gpus.size()));
  for (std::size_t i = 0; i < s.gpus.size(); ++i) options.devices[i] = &gpus[s.gpus[i]];
  options.step.dtype = s.dtype;
  options.step.bucket_bytes = engine::kBlock * sizeof(float);
  options.step.algorithm = s.algorithm;
  options.step.update = strategies::update_of(s.update);
  options.communication_thread = s.thread;
  options.step.graphs = strategies::graphs_of(graphs);
  return options;
}

std::string line_of(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

Training train_with(const Setting& s, const std::string& graphs, Job job,
                    engine::cuda::FakeGpuOptions fake = {}) {
  fake.gpus = 2;
  engine::cuda::FakeDevices gpus(fake);
  strategies::Mirrored strategy(options_of(gpus, s, graphs));
  Outcome outcome;
  train(strategy, job, &outcome);
  Training training{.losses = outcome.losses,
                    .repeated = strategy.repeated(),
                    .graphs = line_of(strategy.explain(), "graphs: ")};
  for (int i = 0; i < int(s.gpus.size()); ++i) training.weights.push_back(weights(strategy, i));
  return training;
}

const Setting kSettings[] = {
    {"one replica"},
    {"adam", {0}, DType::kFloat32, engine::optim::adam({.rate = 0.002})},
    {"bfloat16", {0, 0}, DType::kBFloat16},
    {"three replicas", {0, 0, 0}, DType::kFloat32, engine::optim::adam({.rate = 0.002})},
    {.name = "micro-batches", .gpus = {0, 0}, .accumulate = 2},
    {.name = "micro-batches that are read ahead", .accumulate = 3, .prefetch = 2},
    {.name = "dropout", .gpus = {0, 0}, .dropout = 0.3},
    {.name = "batch norm over all replicas", .gpus = {0, 0}, .batch_norm = true},
    {.name = "two GPUs", .gpus = {0, 1, 1}},
    {"clipped",
     {0, 0},
     DType::kFloat32,
     engine::optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = 0.01})},
    {"lars", {0, 0}, DType::kFloat32, engine::optim::lars({.rate = 0.02})},
    {"float16, of a loss scale", {0, 0}, DType::kFloat16, engine::optim::adam({.rate = 0.002})},
    {.name = "the second GPU first", .gpus = {1, 0}},
    {.name = "ring", .gpus = {0, 0, 1}, .algorithm = "ring"},
    {.name = "separate", .gpus = {0, 0}, .algorithm = "one_shot", .update = "separate"},
    {.name = "a thread for communication", .gpus = {0, 0}, .thread = true},
};

TEST(GpuGraphs, RepeatedStepsAreThoseThatTheHostQueues) {
  for (const Setting& s : kSettings) {
    SCOPED_TRACE(s.name);
    const Training queued = train_with(s, "off", job_of(s));
    EXPECT_EQ(queued.repeated, 0);
    // The streams also run in another order.
    const Training recorded = train_with(s, "on", job_of(s), {.seed = 2});
    EXPECT_GE(recorded.repeated, 5 * s.accumulate) << recorded.graphs;
    EXPECT_EQ(recorded.weights, queued.weights);
    EXPECT_EQ(recorded.losses, queued.losses);
  }
}

// A replayed step costs the host few launches, measured in the middle of a run.
TEST(GpuGraphs, ARepeatedStepIsOneLaunchAndAFewAroundIt) {
  const auto launches = [](const std::string& graphs) {
    std::atomic<int> count = 0;
    int before = 0, after = 0;
    Setting s{"two replicas", {0, 0}};
    Job job = job_of(s);
    job.batch = 13;  // every batch is whole
    job.steps = 30;
    job.on_step = [&](const engine::StepReport& report) {
      if (report.step == 10) before = count;
      if (report.step == 20) after = count;
    };
    train_with(s, graphs, job, {.on_launch = [&] { ++count; }});
    return (after - before) / 10;
  };
  const int queued = launches("off"), repeated = launches("auto");
  // One launch is for the graph. Each replica adds its batch, its sums of losses, and a few
  // checksums.
  EXPECT_LE(repeated, 1 + 2 * 4);
  EXPECT_GT(queued, 3 * repeated);
}

// The driver refuses a launch during capture: early in a step, in the middle, or the last one. The
// step is then queued instead.
TEST(GpuGraphs, WhatADeviceRefusesIsQueuedAndSaidOnce) {
  const Setting s{"two replicas", {0, 0}};
  const Training queued = train_with(s, "off", job_of(s));
  std::mutex mutex;
  std::vector<std::string> lines;
  const auto refused = [&](const std::string& graphs, std::size_t launch) {
    engine::cuda::FakeDevices gpus({.gpus = 2, .refused_recorded = launch});
    strategies::SynchronousOptions options = options_of(gpus, s, graphs);
    options.log = engine::Log("", engine::Log::Level::kWarning,
                              [&](engine::Log::Level, std::string_view line) {
                                const std::scoped_lock lock(mutex);
                                lines.emplace_back(line);
                              });
    strategies::Mirrored strategy(options);
    Outcome outcome;
    train(strategy, job_of(s), &outcome);
    EXPECT_EQ(strategy.repeated(), 0);
    EXPECT_EQ(line_of(strategy.explain(), "graphs: ")
                  .find("graphs: off, since the device refused: cuda:0: cuLaunchKernelEx of "),
              0u);
    EXPECT_EQ(weights(strategy, 0), queued.weights[0]);
    EXPECT_EQ(outcome.losses, queued.losses);
  };
  for (const std::size_t launch : {0, 7, 25}) {
    SCOPED_TRACE(launch);
    lines.clear();
    refused("auto", launch);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("steps are queued call by call, since no graph can be made of them: "),
              std::string::npos)
        << lines[0];
  }
  try {
    refused("on", 7);
    ADD_FAILURE() << "was refused, and went on";
  } catch (const engine::Error& error) {
    EXPECT_NE(std::string(error.what()).find("graphs: on was asked for, and the device refused"),
              std::string::npos)
        << error.what();
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "nothing went wrong";
}

TEST(GpuGraphs, WhereTheHostTakesPartThereAreNone) {
  const Setting s{"two replicas", {0, 0}};
  Job job = job_of(s);
  job.centre = true;  // computed by loops over its operands
  job.fallback = engine::Fallback::kCpu;
  const Training training = train_with(s, "auto", job);
  EXPECT_EQ(training.repeated, 0);
  EXPECT_EQ(training.graphs,
            "graphs: off, since layers of the model, or its loss, run on the host");
  EXPECT_EQ(error_of([&] { train_with(s, "on", job); }),
            "graphs: on was asked for, and cannot be, since layers of the model, or its loss, run "
            "on the host; leave it to auto");
  engine::cuda::FakeDevices gpus({.gpus = 2});
  EXPECT_EQ(error_of([&] {
              train_collective(job_of(s), options_of(gpus, s, "on"), {0, 0});
            }),
            "graphs: on was asked for, and cannot be, since the host takes part in sums over "
            "several processes; leave it to auto");
  strategies::SynchronousOptions options = replicas(2);
  options.step.graphs = strategies::Graphs::kOn;
  EXPECT_EQ(error_of([&] { train_mirrored({}, options); }),
            "graphs: on was asked for, and cannot be, since graphs are of GPUs, and the replicas "
            "are on processors; leave it to auto");
  EXPECT_EQ(error_of([] { strategies::graphs_of("maybe"); }),
            "unknown graphs 'maybe'; known: auto, on, off");
}

// Evaluations between replayed steps use the same memory with other batches.
TEST(GpuGraphs, EvaluationsInBetweenChangeNothing) {
  const Setting s{"two replicas", {0, 0}};
  const Table test(17, 20, 5);
  Job job = job_of(s);
  job.batch_norm = true;
  const Training without = train_with(s, "on", job);
  job.test = &test;
  const Training queued = train_with(s, "off", job), repeated = train_with(s, "on", job);
  EXPECT_GE(repeated.repeated, 5);
  EXPECT_EQ(repeated.weights, queued.weights);
  EXPECT_EQ(repeated.weights, without.weights);
}

// Ids of tables are checked when the next step is queued; the next batch may be there by then.
TEST(GpuGraphs, TablesAreLearntAndWrongIdsAreNamed) {
  class Clicks : public engine::Dataset {
   public:
    explicit Clicks(const engine::Dataset& clicks) : clicks_(clicks) {}
    std::uint64_t size() const override { return clicks_.size(); }
    engine::Shape input_shape() const override { return clicks_.input_shape(); }
    std::size_t target_columns() const override { return clicks_.target_columns(); }
    void read(std::uint64_t index, std::span<float> in, std::span<float> out) const override {
      clicks_.read(index, in, out);
      if (index == wrong) in.back() = 0.5f;  // the ids follow the numbers
    }
    std::string describe() const override { return clicks_.describe(); }
    std::uint64_t fingerprint() const override { return clicks_.fingerprint(); }
    std::uint64_t wrong = ~std::uint64_t(0);

   private:
    const engine::Dataset& clicks_;
  };
  const engine::data::Sets sets =
      engine::data::generated_clicks({.train = 400, .test = 0, .buckets = 20});
  Clicks clicks(*sets.train);
  const auto trained = [&](const std::string& graphs) {
    engine::cuda::FakeDevices gpus({});
    strategies::Mirrored strategy(options_of(gpus, {"two replicas", {0, 0}}, graphs));
    engine::Trainer trainer(strategy, models::wide_deep({.buckets = 20, .columns = 2}),
                            engine::optim::sgd({.rate = 0.05, .momentum = 0.9}),
                            {.log = engine::Log("", engine::Log::Level::kError)});
    trainer.fit(
        clicks,
        {.steps = 9, .global_batch = 8, .accumulate = 2, .shuffle = false, .prefetch_threads = 0});
    EXPECT_EQ(strategy.repeated() > 10, graphs == "on");
    return weights(strategy, 0);
  };
  EXPECT_EQ(trained("on"), trained("off"));
  clicks.wrong = 58;  // in the first half of step 8
  const std::string queued = error_of([&] { trained("off"); });
  EXPECT_NE(queued.find("0.5"), std::string::npos) << queued;
  EXPECT_EQ(error_of([&] { trained("on"); }), queued);
}

// A checkpoint has the last replay's weights and moving averages, which lie in host memory.
TEST(GpuGraphs, WhatIsSavedIsWhatTheLastRepetitionLeft) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / fmt::format("gpu_graphs_{}", getpid());
  const auto saved = [&](const std::string& graphs) {
    Setting s{"batch norm", {0}};
    s.batch_norm = true;
    Job job = job_of(s);
    job.batch = 13;
    job.checkpoints = root / graphs;
    job.every = 7;
    train_with(s, graphs, job);
    std::string all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(job.checkpoints)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      all.append(std::istreambuf_iterator<char>(file), {});
    }
    return all;
  };
  const std::string queued = saved("off"), repeated = saved("on");
  std::filesystem::remove_all(root);
  EXPECT_FALSE(queued.empty());
  EXPECT_TRUE(repeated == queued) << repeated.size() << " bytes, and " << queued.size();
}

TEST(GpuGraphs, AMirrorThatDiffersIsNamed) {
  for (const char* update : {"fused", "separate"}) {
    SCOPED_TRACE(update);
    engine::cuda::FakeDevices gpus({});
    Setting s{"two replicas", {0, 0}};
    s.update = update;
    strategies::Mirrored strategy(options_of(gpus, s, "on"));
    const Job job = job_of(s);
    const Table data(1000, 20, 5);
    engine::Trainer trainer(strategy, small_graph(job), job.optimizer);
    const engine::FitOptions fit{.steps = 30, .global_batch = 11, .prefetch_threads = 0};
    trainer.fit(data, fit);
    const std::int64_t repeated = strategy.repeated();
    EXPECT_GE(repeated, 25);
    corrupt(strategy, 1, 5 * 32 + 16 + 7);
    try {
      trainer.fit(data, fit);
      ADD_FAILURE() << "nobody noticed";
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt);
      EXPECT_NE(
          std::string(error.what())
              .find("mirrors are no longer equal: dense2.weight differs on rank 1 from rank 0"),
          std::string::npos)
          << error.what();
    }
    EXPECT_GT(strategy.repeated(), repeated) << "nothing was repeated before";
  }
}

// If a replica fails in a replayed step, the others stop waiting for it.
TEST(GpuGraphs, AReplicaThatFailsEndsTheWaitOfTheOthers) {
  const Setting s{"three replicas", {0, 0, 0}};
  Job job = job_of(s);
  job.on_step = [](const engine::StepReport& report) {
    if (report.step == 8) engine::fail(Code::kInvalid, "the eighth step was enough");
  };
  const auto begin = engine::Clock::now();
  EXPECT_EQ(error_of([&] { train_with(s, "on", job); }), "the eighth step was enough");
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace gpu_graphs_test
}  // namespace lockstep::test
