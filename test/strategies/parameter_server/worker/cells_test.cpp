// SPDX-License-Identifier: MIT
// Training with servers in all four ways: workers of one process or of several, synchronous or
// asynchronous. All solve the same convex problem, and each task writes only its own files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <mutex>
#include <set>

#include "engine/checkpoint/storage.h"
#include "engine/nn/layers.h"
#include "engine/runtime/devices.h"
#include "engine/train/trainer.h"
#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/session/local_cluster.h"
#include "strategies/session/server_task.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace cells_test {

using namespace std::chrono_literals;
using namespace strategies;

namespace fs = std::filesystem;

constexpr int kWorkers = 3;
constexpr std::size_t kInputs = 4, kTargets = 2;

// Has targets that are a linear map of the inputs, so that one layer can reach zero error.
class Plane : public engine::Dataset {
 public:
  std::uint64_t size() const override { return 64; }
  engine::Shape input_shape() const override { return {kInputs}; }
  std::size_t target_columns() const override { return kTargets; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    for (std::size_t i = 0; i < kInputs; ++i)
      input[i] = float(std::sin(double(index * kInputs + i) * 7.13));
    for (std::size_t t = 0; t < kTargets; ++t) {
      target[t] = 0.3f;
      for (std::size_t i = 0; i < kInputs; ++i)
        target[t] += float(std::cos(double(t * kInputs + i))) * input[i];
    }
  }
  std::string describe() const override { return "a plane"; }
  std::uint64_t fingerprint() const override { return 1; }
};

engine::History fit(engine::Strategy& strategy, engine::Storage* storage = nullptr,
                    const std::string& checkpoints = "") {
  engine::GraphSpec graph("line", {kInputs});
  graph.add("line", engine::dense(kTargets), graph.input());
  graph.set_loss(engine::mean_squared_error());
  engine::TrainerOptions options;
  options.log = engine::Log("", engine::Log::Level::kError);
  options.storage = storage;
  engine::optim::Optimizer optimizer = engine::optim::sgd({.rate = 0.2});
  optimizer.schedule = engine::optim::schedule("constant");
  engine::Trainer trainer(strategy, graph, optimizer, options);
  const Plane data;
  engine::FitOptions fit;
  fit.steps = 600;
  fit.global_batch = 9;
  fit.prefetch_threads = 0;
  fit.test = &data;
  fit.checkpoints = checkpoints;
  fit.every = 200;
  return trainer.fit(data, fit);
}

struct Ended {
  double loss = 0;
  std::vector<double> weights = {};
};

class Cells : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  bool processes() const { return std::get<0>(GetParam()); }
  ParameterServerOptions options(int first, int local) {
    ParameterServerOptions options;
    options.devices.assign(std::size_t(local), &cpu_);
    options.dtype = engine::DType::kFloat32;
    options.servers = 2;
    options.workers = kWorkers;
    options.first_worker = first;
    options.updates.synchronous = std::get<1>(GetParam());
    options.updates.warm_up = 0;
    options.placement.partitioner = FixedShards{2};
    options.log = engine::Log("", engine::Log::Level::kError);
    return options;
  }
  Ended one_process() {
    const LocalCluster cluster(2, cpu_, engine::DType::kFloat32);
    ParameterServerOptions mine = options(0, kWorkers);
    mine.connect = [&](std::size_t server) { return cluster.connect(server); };
    ParameterServer strategy(mine);
    const engine::History history = fit(strategy);
    return {history.test->loss, strategy.weights()};
  }
  Ended several() {
    std::vector<std::unique_ptr<ServerTask>> tasks;
    for (int i = 0; i < 2; ++i) tasks.push_back(server_task());
    const auto connect = [&](std::size_t server) {
      return strategies::grpc::connect(tasks[server]->address());
    };
    ParameterServerOptions mine = options(0, 1);
    mine.connect = connect;
    ParameterServer chief(mine);
    const auto server = strategies::grpc::serve(chief.scheduler());
    std::vector<std::future<void>> followers;
    for (int worker = 1; worker < kWorkers; ++worker)
      followers.push_back(std::async(std::launch::async, [&, worker] {
        ParameterServerOptions theirs = options(worker, 1);
        theirs.connect = connect;
        theirs.chief = [&] { return strategies::grpc::connect(server->address()); };
        ParameterServer strategy(theirs);
        fit(strategy);
      }));
    const engine::History history = fit(chief);
    Ended ended{history.test->loss, chief.weights()};
    chief.close();
    for (auto& follower : followers) follower.get();
    return ended;
  }

  const std::vector<std::unique_ptr<engine::Device>> devices_ = engine::host_devices();
  engine::Device& cpu_ = engine::find(devices_, engine::parse_device_id("cpu"));
};

TEST_P(Cells, ConvergeOnAConvexProblemAndRepeatTheirBitsWhereTheyAreSynchronous) {
  const Ended one = processes() ? several() : one_process();
  EXPECT_LT(one.loss, 1e-6);
  if (!std::get<1>(GetParam())) return;  // updates apply in order of arrival
  const Ended again = processes() ? several() : one_process();
  EXPECT_EQ(difference(one.weights, again.weights), 0);
}

INSTANTIATE_TEST_SUITE_P(Servers, Cells, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& with) {
                           return std::string(std::get<0>(with.param) ? "Processes"
                                                                      : "OneProcess") +
                                  (std::get<1>(with.param) ? "Synchronous" : "Asynchronous");
                         });

// Records the files that are written through it to the file system.
class Spy : public engine::Storage {
 public:
  std::set<std::string> written() const {
    const std::scoped_lock lock(mutex_);
    return written_;
  }
  std::vector<std::string> make_folder(const std::string& path) override {
    return files_->make_folder(path);
  }
  bool remove_folder(const std::string& path) override { return files_->remove_folder(path); }
  std::unique_ptr<engine::StorageFile> create(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    written_.insert(fs::path(path).filename());
    return files_->create(path);
  }
  void rename(const std::string& from, const std::string& to) override { files_->rename(from, to); }
  void sync_folder(const std::string& path) override { files_->sync_folder(path); }
  void remove_tree(const std::string& path) override { files_->remove_tree(path); }
  std::vector<std::string> list(const std::string& folder) override { return files_->list(folder); }
  bool exists(const std::string& path) override { return files_->exists(path); }
  std::uint64_t room(const std::string& folder) override { return files_->room(folder); }
  std::uint64_t size(const std::string& path) override { return files_->size(path); }
  void read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) override {
    files_->read(path, offset, to);
  }
  std::unique_ptr<engine::StorageLock> lock(const std::string& path, const std::string& mine,
                                            std::string& holder) override {
    return files_->lock(path, mine, holder);
  }

 private:
  const std::unique_ptr<engine::Storage> files_ = engine::posix_storage();
  mutable std::mutex mutex_;
  std::set<std::string> written_;
};

TEST(Files, ServersWriteTheirShardsTheChiefTheManifestAndNobodyElseAnything) {
  std::string folder = (fs::temp_directory_path() / "lockstep-files-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto devices = engine::host_devices();
  engine::Device& cpu = engine::find(devices, engine::parse_device_id("cpu"));
  Spy of_servers, of_chief, of_follower;
  const LocalCluster cluster(2, cpu, engine::DType::kFloat32, engine::Log(), &of_servers);
  const auto options = [&](int first) {
    ParameterServerOptions mine;
    mine.devices.assign(1, &cpu);
    mine.dtype = engine::DType::kFloat32;
    mine.servers = 2;
    mine.workers = 2;
    mine.first_worker = first;
    mine.connect = [&](std::size_t server) { return cluster.connect(server); };
    mine.log = engine::Log("", engine::Log::Level::kError);
    return mine;
  };
  {
    ParameterServer chief(options(0));
    const auto server = strategies::grpc::serve(chief.scheduler());
    auto follower = std::async(std::launch::async, [&] {
      ParameterServerOptions theirs = options(1);
      theirs.chief = [&] { return strategies::grpc::connect(server->address()); };
      ParameterServer strategy(theirs);
      fit(strategy, &of_follower, folder + "/run");
    });
    EXPECT_EQ(fit(chief, &of_chief, folder + "/run").steps, 600);
    chief.close();
    follower.get();
  }
  EXPECT_THAT(of_servers.written(), testing::SizeIs(2));
  EXPECT_THAT(of_servers.written(), testing::Each(testing::StartsWith("shard-")));
  EXPECT_THAT(of_chief.written(), testing::Contains("manifest.json.tmp"));  // later renamed
  EXPECT_THAT(of_chief.written(), testing::Each(testing::Not(testing::StartsWith("shard-"))));
  EXPECT_THAT(of_follower.written(), testing::IsEmpty());
  fs::remove_all(folder);
}

}  // namespace cells_test
}  // namespace lockstep::test
