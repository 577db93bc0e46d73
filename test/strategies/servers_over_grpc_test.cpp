// SPDX-License-Identifier: MIT
// The same by gRPC: servers and the chief on ports of this host, processes that are threads.
#include <gtest/gtest.h>

#include <future>

#include "engine/runtime/devices.h"
#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "strategies/parameter_server/parameter_server.h"
#include "strategies/parameter_server/shared_connection.h"
#include "strategies/session/server_task.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace {

using namespace std::chrono_literals;
using namespace strategies;

// Whether bodies of messages go through memory that both sides map.
class OverGrpc : public testing::TestWithParam<bool> {
 protected:
  OverGrpc() {
    for (int i = 0; i < 2; ++i) tasks_.push_back(server_task());
    job_.steps = 30;
    job_.dtype = engine::DType::kFloat32;
    one_ = replicas(1);
    one_.devices.assign(1, &cpu_);
  }
  ParameterServerOptions options(int first, int workers, bool synchronous) {
    ParameterServerOptions options;
    options.updates.warm_up = 0;
    options.devices.assign(1, &cpu_);
    options.servers = tasks_.size();
    options.connect = [this](std::size_t server) { return connect(tasks_[server]->address()); };
    options.placement.partitioner = FixedShards{2};
    options.workers = workers;
    options.first_worker = first;
    options.updates.synchronous = synchronous;
    options.chunk_bytes = 1000;
    options.log = engine::Log("", engine::Log::Level::kError);
    return options;
  }

  std::unique_ptr<rpc::Connection> connect(const std::string& address) {
    auto connection = strategies::grpc::connect(address);
    if (!GetParam()) return connection;
    return std::make_unique<rpc::SharedConnection>(std::move(connection), engine::Log(),
                                                   rpc::SharedOptions{.least = 1});
  }

  const std::vector<std::unique_ptr<engine::Device>> devices_ = engine::all_devices();
  engine::Device& cpu_ = engine::find(devices_, engine::parse_device_id("cpu"));
  std::vector<std::unique_ptr<ServerTask>> tasks_;
  Job job_;
  SynchronousOptions one_;
};

TEST_P(OverGrpc, OneWorkerIsOneReplicaBitForBitAndServersHearOfTheEnd) {
  std::vector<double> weights;
  {
    ParameterServer strategy(options(0, 1, false));
    train(strategy, job_, nullptr);
    weights = strategy.weights();
  }
  EXPECT_EQ(difference(train_mirrored(job_, one_).weights[0], weights), 0);
  for (const auto& task : tasks_) {
    const auto end = task->join(engine::Clock::now() + 20s);
    ASSERT_TRUE(end);
    EXPECT_FALSE(end->failed);
  }
}

TEST_P(OverGrpc, ProcessesThatFollowMakeTheStepsOfReplicas) {
  ParameterServer chief(options(0, 3, true));
  auto server = strategies::grpc::serve(chief.coordinator());
  std::vector<std::future<std::int64_t>> followers;
  for (const int worker : {1, 2}) {
    followers.push_back(std::async(std::launch::async, [&, worker] {
      ParameterServerOptions mine = options(worker, 3, true);
      mine.chief = [&] { return strategies::grpc::connect(server->address()); };
      ParameterServer strategy(mine);
      return train(strategy, job_, nullptr).steps;
    }));
  }
  EXPECT_EQ(train(chief, job_, nullptr).steps, 30);
  const std::vector<double> weights = chief.weights();
  chief.close();
  for (auto& follower : followers) EXPECT_EQ(follower.get(), 30);
  server.reset();
  EXPECT_LT(relative(train_mirrored(job_, one_).weights[0], weights), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Bodies, OverGrpc, testing::Bool(), [](const auto& with) {
  return with.param ? "InSharedMemory" : "BySockets";
});

}  // namespace
}  // namespace lockstep::test
