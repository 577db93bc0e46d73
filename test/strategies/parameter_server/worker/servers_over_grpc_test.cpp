// SPDX-License-Identifier: MIT
// The same laws over gRPC: servers and the chief have ports of this host; processes are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "engine/runtime/devices.h"
#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "strategies/parameter_server/rpc/shared_connection.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/session/server_task.h"
#include "test/strategies/grpc/certificates.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace servers_over_grpc_test {

using namespace std::chrono_literals;
using namespace strategies;

// Messages travel through sockets, with bodies in memory that both sides map, or with TLS.
enum class By : std::uint8_t { kSockets, kMemory, kTls };
class OverGrpc : public testing::TestWithParam<By> {
 protected:
  OverGrpc() {
    if (GetParam() == By::kTls) ours_.emplace();
    for (int i = 0; i < 2; ++i) tasks_.push_back(server_task({.serve = {.tls = tls()}}));
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

  strategies::grpc::TlsFiles tls() const {
    return ours_ ? ours_->files() : strategies::grpc::TlsFiles();
  }
  std::unique_ptr<rpc::Connection> connect(const std::string& address) {
    auto connection = strategies::grpc::connect(address, {.tls = tls()});
    if (GetParam() != By::kMemory) return connection;
    return std::make_unique<rpc::SharedConnection>(std::move(connection), engine::Log(),
                                                   rpc::SharedOptions{.least = 1});
  }

  const std::vector<std::unique_ptr<engine::Device>> devices_ = engine::host_devices();
  engine::Device& cpu_ = engine::find(devices_, engine::parse_device_id("cpu"));
  std::optional<Certificates> ours_;
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
  auto server = strategies::grpc::serve(chief.scheduler(), {.tls = tls()});
  if (ours_) {  // another authority signed the client's certificate
    const Certificates others;
    ParameterServerOptions stranger = options(1, 3, true);
    stranger.deadline = 1s;
    stranger.chief = [&] {
      return strategies::grpc::connect(server->address(), {.tls = others.files()});
    };
    ParameterServer strategy(stranger);
    try {
      train(strategy, job_, nullptr);
      ADD_FAILURE() << "a stranger trains";
    } catch (const engine::Error& error) {  // not that the chief is missing
      EXPECT_THAT(error.what(), testing::HasSubstr("none of our authority's"));
    }
  }
  std::vector<std::future<std::int64_t>> followers;
  for (const int worker : {1, 2}) {
    followers.push_back(std::async(std::launch::async, [&, worker] {
      ParameterServerOptions mine = options(worker, 3, true);
      mine.chief = [&] { return strategies::grpc::connect(server->address(), {.tls = tls()}); };
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

INSTANTIATE_TEST_SUITE_P(Messages, OverGrpc, testing::Values(By::kSockets, By::kMemory, By::kTls),
                         [](const auto& with) {
                           return with.param == By::kSockets  ? "BySockets"
                                  : with.param == By::kMemory ? "InMemory"
                                                              : "WithTls";
                         });

}  // namespace servers_over_grpc_test
}  // namespace lockstep::test
