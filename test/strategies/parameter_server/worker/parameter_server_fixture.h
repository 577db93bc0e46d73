// SPDX-License-Identifier: MIT
// Jobs with servers in this process that may die, and a folder for their checkpoints.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "engine/reference/reference_device.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "test/strategies/parameter_server/worker/mortal_servers.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {

class ParameterServerTest : public testing::Test {
 protected:
  ParameterServerTest() {
    std::string name =
        (std::filesystem::temp_directory_path() / "lockstep-servers-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ParameterServerTest() override { std::filesystem::remove_all(folder_); }

  strategies::ParameterServerOptions options(MortalServers& servers, int count, int replicas = 1) {
    strategies::ParameterServerOptions options;
    options.updates.warm_up = 0;
    options.devices.assign(std::size_t(replicas), device_.get());
    options.servers = std::size_t(count);
    options.connect = [&](std::size_t server) { return servers.connect(server); };
    options.placement.partitioner = strategies::FixedShards{2};
    options.chunk_bytes = 1000;
    options.deadline = std::chrono::seconds(20);
    options.poll_interval = std::chrono::milliseconds(20);
    options.log = engine::Log("", engine::Log::Level::kError);
    return options;
  }
  Outcome train_with(int count, int replicas, const Job& job,
                     const std::function<void(strategies::ParameterServerOptions&)>& change = {}) {
    MortalServers servers(count, *device_, engine::DType::kFloat64);
    strategies::ParameterServerOptions mine = options(servers, count, replicas);
    if (change) change(mine);
    strategies::ParameterServer strategy(mine);
    Outcome outcome;
    outcome.history = train(strategy, job, &outcome);
    outcome.weights.push_back(strategy.weights());
    counts_ = strategy.counts();
    return outcome;
  }
  static Job momentum_job(std::int64_t steps = 20) {
    Job job;
    job.steps = steps;
    return job;
  }
  // Returns a job with weight decay, which applies to weights but not to the other parameters.
  static Job decay_job() {
    Job job;
    job.norm = true;
    job.optimizer = engine::optim::sgd({.rate = 0.02, .momentum = 0.9, .weight_decay = 0.1});
    return job;
  }
  Job adam_job() {
    Job job;
    job.optimizer = engine::optim::adam({.rate = 0.01});
    return job;
  }

  const std::unique_ptr<engine::Device> device_ = engine::reference_device();
  std::string folder_;
  strategies::ServerWorker::Counts counts_;
};

}  // namespace lockstep::test
