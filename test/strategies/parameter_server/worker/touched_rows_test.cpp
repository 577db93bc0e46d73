// SPDX-License-Identifier: MIT
// Training of models with tables on parameter servers. Only the rows that a batch touches travel,
// and the laws hold as with whole tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/nn/layers.h"
#include "engine/optim/optimizer.h"
#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "engine/train/trainer.h"
#include "strategies/grpc/connection.h"
#include "strategies/parameter_server/rpc/shared_connection.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/session/server_task.h"
#include "strategies/synchronous/mirrored.h"
#include "test/strategies/inspection.h"
#include "test/strategies/parameter_server/worker/mortal_servers.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace touched_rows_test {

using namespace std::chrono_literals;
using namespace strategies;
using engine::Code;
using engine::Error;
using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr std::size_t kNumbers = 2, kFields = 3, kColumns = 4, kBatch = 8;

// A dataset with two numbers and three ids, one for each field of `rows` rows. The ids are drawn
// from the first `used` rows.
class Ids : public engine::Dataset {
 public:
  explicit Ids(std::size_t rows, std::size_t used = 0) : rows_(rows), used_(used ? used : rows) {}
  std::uint64_t size() const override { return 64; }
  engine::Shape input_shape() const override { return {kNumbers + kFields}; }
  std::size_t target_columns() const override { return 2; }
  std::size_t id(std::uint64_t index, std::size_t field) const {
    return std::size_t((index * 2654435761u + field * 40503u) >> 7) % used_;
  }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    for (std::size_t i = 0; i < kNumbers; ++i)
      input[i] = float(std::sin(double(index * kNumbers + i) * 7.13));
    for (std::size_t i = 0; i < kFields; ++i) input[kNumbers + i] = float(id(index, i));
    for (std::size_t i = 0; i < 2; ++i) target[i] = float(std::cos(double(index * 2 + i) * 3.77));
  }
  std::string describe() const override { return "ids"; }
  std::uint64_t fingerprint() const override { return rows_; }
  // Returns the number of the table's rows that a batch of these examples touches.
  std::size_t touched(std::uint64_t first, std::size_t count) const {
    std::set<std::size_t> rows;
    for (std::uint64_t index = first; index < first + count; ++index)
      for (std::size_t field = 0; field < kFields; ++field)
        rows.insert(field * rows_ + id(index, field));
    return rows.size();
  }

 private:
  std::size_t rows_, used_;
};

engine::GraphSpec table_graph(std::size_t rows) {
  engine::GraphSpec graph("tables", {kNumbers + kFields});
  engine::EmbeddingOptions ids{.first = kNumbers, .fields = kFields};
  const auto numbers = graph.add("numbers", engine::columns(0, kNumbers), graph.input());
  const auto deep = graph.add("deep", engine::embedding(rows, kColumns, ids), graph.input());
  const auto all = graph.add("all", engine::concatenate(), {numbers, deep});
  const auto bent = graph.add("bent", engine::tanh(), graph.add("hidden", engine::dense(6), all));
  const auto logits = graph.add("logits", engine::dense(2), bent);
  ids.sum = true;
  const auto wide = graph.add("wide", engine::embedding(rows, 2, ids), graph.input());
  graph.add("both", engine::add(), {logits, wide});
  graph.set_loss(engine::mean_squared_error());
  return graph;
}

struct Training {
  std::size_t rows = 40, used = 0;
  std::int64_t steps = 20;
  engine::optim::Optimizer optimizer = engine::optim::sgd({.rate = 0.05});
  std::string frozen, checkpoints;
  std::int64_t every = 0;
  bool shuffle = true;
  int accumulate = 1;
};

struct Trained {
  engine::History history;
  std::vector<double> losses, weights;
  std::vector<engine::Traffic> traffic;  // one per step
  ServerWorker::Counts counts;
};

engine::History fit(engine::Strategy& strategy, const Training& t, Trained& trained) {
  engine::GraphSpec graph = table_graph(t.rows);
  if (!t.frozen.empty()) graph.freeze(t.frozen);
  engine::TrainerOptions options;
  options.log = engine::Log("", engine::Log::Level::kError);
  engine::Trainer trainer(strategy, graph, t.optimizer, options);
  const Ids data(t.rows, t.used);
  engine::FitOptions fit;
  fit.steps = t.steps;
  fit.global_batch = kBatch;
  fit.shuffle = t.shuffle;
  fit.accumulate = t.accumulate;
  fit.checkpoints = t.checkpoints;
  fit.every = t.every;
  fit.prefetch_threads = 0;
  fit.test = &data;
  fit.on_step = [&](const engine::StepReport& report) {
    trained.losses.push_back(report.loss);
    if (report.traffic) trained.traffic.push_back(*report.traffic);
  };
  return trainer.fit(data, fit);
}

Trained mirrored(const Training& t, int count) {
  SynchronousOptions options = replicas(count);
  options.step.dtype = engine::DType::kFloat64;
  Mirrored strategy(options);
  Trained trained;
  trained.history = fit(strategy, t, trained);
  trained.weights = weights(strategy, 0);
  return trained;
}

class TouchedRows : public testing::Test {
 protected:
  TouchedRows() {
    std::string name = (fs::temp_directory_path() / "lockstep-rows-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TouchedRows() override { fs::remove_all(folder_); }

  using Change = std::function<void(ParameterServerOptions&)>;
  Trained with_servers(int servers, int workers, const Training& t, const Change& change = {}) {
    MortalServers tasks(servers, *device_, engine::DType::kFloat64);
    ParameterServerOptions options;
    options.devices.assign(std::size_t(workers), device_.get());
    options.servers = std::size_t(servers);
    options.connect = [&](std::size_t server) { return tasks.connect(server); };
    options.placement.partitioner = FixedShards{3};
    options.chunk_bytes = 300;
    options.deadline = 20s;
    options.log = engine::Log("", engine::Log::Level::kError);
    if (change) change(options);
    ParameterServer strategy(options);
    Trained trained;
    trained.history = fit(strategy, t, trained);
    trained.weights = strategy.weights();
    trained.counts = strategy.counts();
    explained_ = strategy.explain();
    return trained;
  }
  static engine::optim::Optimizer momentum() {
    return engine::optim::sgd({.rate = 0.05, .momentum = 0.9, .weight_decay = 0.01});
  }

  const std::unique_ptr<engine::Device> device_ = engine::reference_device();
  std::string folder_, explained_;
};

TEST_F(TouchedRows, OneAsynchronousWorkerIsOneReplicaBitForBit) {
  for (const char* frozen : {"", "deep.weight", "wide"}) {
    Training t;
    t.frozen = frozen;
    const Trained one = mirrored(t, 1);
    for (const int servers : {1, 2, 3}) {
      const Trained other = with_servers(servers, 1, t);
      EXPECT_EQ(difference(one.weights, other.weights), 0) << servers << " servers, " << frozen;
      EXPECT_EQ(one.losses, other.losses);
      EXPECT_EQ(one.history.test->loss, other.history.test->loss);
    }
  }
}

// Rows travel by gRPC in float32, with bodies in messages and in memory that both sides map.
TEST_F(TouchedRows, TravelBetweenTasks) {
  const auto devices = engine::host_devices();
  engine::Device& cpu = engine::find(devices, engine::parse_device_id("cpu"));
  std::vector<std::unique_ptr<ServerTask>> tasks;
  for (int i = 0; i < 2; ++i) tasks.push_back(server_task());
  const Trained here = mirrored({}, 1);
  for (const bool shared : {false, true}) {
    const Trained there = with_servers(2, 1, {}, [&](ParameterServerOptions& options) {
      options.devices.assign(1, &cpu);
      options.dtype = engine::DType::kFloat32;
      options.container = shared ? "shared" : "sent";
      options.connect = [&](std::size_t server) -> std::unique_ptr<rpc::Connection> {
        auto connection = strategies::grpc::connect(tasks[server]->address());
        if (!shared) return connection;
        return std::make_unique<rpc::SharedConnection>(std::move(connection), engine::Log(),
                                                       rpc::SharedOptions{.least = 1});
      };
    });
    EXPECT_LT(relative(here.weights, there.weights), 1e-5) << shared;
    EXPECT_NEAR(here.history.test->loss, there.history.test->loss, 1e-5);
  }
}

// If every batch touches all rows, nothing is left out with any optimizer.
TEST_F(TouchedRows, AllRowsTouchedIsTheWholeTableWithAnyOptimizer) {
  Training t;
  t.rows = 1;
  for (const auto& optimizer :
       {momentum(), engine::optim::sgd({.rate = 0.05, .momentum = 0.9, .nesterov = true}),
        engine::optim::adam({.rate = 0.01}), engine::optim::adamw({.rate = 0.01})}) {
    t.optimizer = optimizer;
    EXPECT_EQ(difference(mirrored(t, 1).weights, with_servers(2, 1, t).weights), 0)
        << optimizer.describe();
  }
}

// After the first steps, no batch touches the rows at the end of each field. Momentum, moments and
// decay leave such rows alone, unlike with whole tables.
TEST_F(TouchedRows, WhatNobodyTouchesRests) {
  for (const auto& optimizer : {momentum(), engine::optim::adamw({.rate = 0.01})}) {
    Training first;
    first.optimizer = optimizer;
    first.steps = 8;
    first.checkpoints = folder_ + "/rows";
    const Trained before = with_servers(2, 1, first);
    Training rest = first;
    rest.used = 10;
    rest.steps = 16;
    const Trained after = with_servers(2, 1, rest);
    std::size_t moved = 0, resting = 0;
    // The arena holds the last layer first, so the deep table is at its end.
    const std::size_t deep = before.weights.size() - kFields * rest.rows * kColumns;
    for (std::size_t row = 0; row < kFields * rest.rows; ++row) {
      for (std::size_t c = 0; c < kColumns; ++c) {
        const std::size_t i = deep + row * kColumns + c;
        const bool same = before.weights[i] == after.weights[i];
        if (row % rest.rows >= rest.used) {
          EXPECT_TRUE(same) << "row " << row;
        }
        ++(same ? resting : moved);
      }
    }
    EXPECT_GT(moved, 0u);
    EXPECT_GT(resting, moved);
    EXPECT_THAT(explained_, HasSubstr("wait until they are touched"));
    fs::remove_all(first.checkpoints);
  }
}

TEST_F(TouchedRows, SynchronousWorkersAreReplicas) {
  Training t;
  const auto synchronous = [](auto& options) { options.updates.synchronous = true; };
  const Trained one = mirrored(t, 3), other = with_servers(2, 3, t, synchronous);
  EXPECT_LT(difference(one.weights, other.weights), 1e-12);
  EXPECT_EQ(difference(other.weights, with_servers(2, 3, t, synchronous).weights), 0);
  const Trained some = with_servers(2, 3, t, [](auto& options) {
    options.updates.synchronous = true;
    options.updates.aggregate = 2;
  });
  EXPECT_EQ(some.history.steps, t.steps);
  for (const double weight : some.weights) ASSERT_TRUE(std::isfinite(weight));
}

TEST_F(TouchedRows, AsynchronousWorkersLearnWithPoliciesForStaleGradients) {
  Training t;
  t.steps = 300;
  for (const bool scale : {false, true}) {
    const Trained trained = with_servers(2, 3, t, [&](auto& options) {
      options.updates.scale_rate = scale;
      options.updates.most_staleness = scale ? 0 : 2;
      options.updates.warm_up = 10;
    });
    EXPECT_EQ(trained.history.steps, 300);
    EXPECT_LT(trained.losses.back(), trained.losses.front());
    EXPECT_LE(trained.counts.too_stale, trained.counts.pushes);
  }
}

// The counters equal a separate account of each step: the distinct rows of its examples, twice (two
// tables), and the dense parameters. They do not depend on the size of a table.
TEST_F(TouchedRows, BytesOfAStepAreThoseOfTheRowsThatItTouches) {
  Training t;
  t.shuffle = false;
  std::vector<engine::Traffic> of_small;
  for (const std::size_t rows : {40, 4000}) {
    t.rows = rows;
    t.used = 40;
    const Ids data(rows, t.used);
    const Trained trained = with_servers(3, 1, t);
    ASSERT_EQ(trained.traffic.size(), std::size_t(t.steps));
    constexpr std::size_t kDense = (kNumbers + kFields * kColumns) * 6 + 6 + 6 * 2 + 2;
    for (std::int64_t step = 0; step < t.steps; ++step) {
      const std::size_t touched = data.touched(std::uint64_t(step) * kBatch % data.size(), kBatch);
      const engine::Traffic& traffic = trained.traffic[std::size_t(step)];
      EXPECT_EQ(traffic.rows_pulled, 2 * touched);
      EXPECT_EQ(traffic.rows_pushed, 2 * touched);
      EXPECT_EQ(traffic.bytes_pulled, (kDense + touched * (kColumns + 2)) * sizeof(double));
      EXPECT_EQ(traffic.bytes_pushed, traffic.bytes_pulled);
    }
    const Trained narrow =
        with_servers(3, 1, t, [](auto& options) { options.updates.bfloat16 = true; });
    EXPECT_EQ(narrow.traffic[3].bytes_pushed * 4, trained.traffic[3].bytes_pushed);
    EXPECT_EQ(trained.history.traffic_steps, t.steps);
    const Trained whole =
        with_servers(3, 1, t, [](auto& options) { options.updates.touched_rows = false; });
    EXPECT_EQ(whole.traffic[3].rows_pulled, 0u);
    EXPECT_EQ(whole.traffic[3].bytes_pulled,
              (kDense + kFields * rows * (kColumns + 2)) * sizeof(double));
    EXPECT_EQ(difference(whole.weights, trained.weights), 0) << "plain sgd: the same update";
  }
}

TEST_F(TouchedRows, CheckpointsGoOnInThreeServersAndInReplicas) {
  for (const bool plain : {true, false}) {
    Training whole;
    whole.optimizer = plain ? engine::optim::sgd({.rate = 0.05}) : engine::optim::adam({});
    Training half = whole;
    half.steps = 9;
    half.every = 9;
    half.checkpoints = folder_ + (plain ? "/plain" : "/adam");
    half.optimizer.schedule = whole.optimizer.schedule = engine::optim::schedule("constant");
    const Trained constant = with_servers(2, 1, whole);
    with_servers(2, 1, half);
    Training rest = whole;
    rest.checkpoints = half.checkpoints;
    fs::copy(half.checkpoints, half.checkpoints + "-again", fs::copy_options::recursive);
    const Trained three = with_servers(3, 1, rest);
    EXPECT_EQ(three.history.first_step, 9);
    EXPECT_EQ(difference(constant.weights, three.weights), 0);
    rest.checkpoints += "-again";
    const Trained replica = mirrored(rest, 1);
    if (plain) {
      EXPECT_EQ(difference(constant.weights, replica.weights), 0);
    }
    rest.steps = 24;  // and back
    EXPECT_EQ(with_servers(2, 1, rest).history.first_step, 20);
  }
}

TEST_F(TouchedRows, MicroBatchesNeedWholeTables) {
  Training t;
  t.accumulate = 2;
  try {
    with_servers(2, 1, t);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("the rows of wide.weight"));
    EXPECT_THAT(error.what(), HasSubstr("let tables travel whole"));
    EXPECT_EQ(error.option(), engine::Option::kTables);
  }
  const auto whole = [](auto& options) { options.updates.touched_rows = false; };
  EXPECT_EQ(difference(mirrored(t, 1).weights, with_servers(2, 1, t, whole).weights), 0);
}

TEST_F(TouchedRows, AServerThatComesBackIsGivenItsRowsAgain) {
  MortalServers tasks(2, *device_, engine::DType::kFloat64);
  ParameterServerOptions options;
  options.devices.assign(2, device_.get());
  options.servers = 2;
  options.connect = [&](std::size_t server) { return tasks.connect(server); };
  options.placement.partitioner = FixedShards{3};
  options.deadline = 20s;
  options.poll_interval = 20ms;
  options.log = engine::Log("", engine::Log::Level::kError);
  ParameterServer strategy(options);
  Training t;
  t.steps = 400;
  t.every = 50;
  t.checkpoints = folder_ + "/restored";
  std::atomic<int> pushes = 0;
  tasks.on_call = [&](std::size_t server, std::string_view method) {
    if (server == 0 && method == "PushRows" && ++pushes == 300) {
      tasks.kill(1);
      tasks.start(1);
    }
  };
  Trained trained;
  EXPECT_EQ(fit(strategy, t, trained).steps, 400);
  EXPECT_LT(trained.losses.back(), trained.losses.front());
}

}  // namespace touched_rows_test
}  // namespace lockstep::test
