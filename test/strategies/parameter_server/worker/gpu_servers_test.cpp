// SPDX-License-Identifier: MIT
// Workers on a GPU with servers on the host have the loss curve and the weights of workers on the
// processor. The GPU is a fake one that runs its streams as late as possible.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/cpu_device.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/session/local_cluster.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/parameter_server/worker/mortal_servers.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace gpu_servers_test {

using namespace std::chrono_literals;
using engine::DType;

struct Way {
  const char* name;
  bool synchronous = true;
  int workers = 1;
  int accumulate = 1;
  bool prefetch = true;
};

Outcome train_on(engine::Device& device, const Way& way) {
  const auto processor = engine::cpu_device();
  MortalServers servers(2, *processor, DType::kFloat32);
  strategies::ParameterServerOptions options;
  options.updates.synchronous = way.synchronous;
  options.updates.prefetch = way.prefetch;
  options.updates.warm_up = 0;
  options.devices.assign(std::size_t(way.workers), &device);
  options.dtype = DType::kFloat32;
  options.servers = 2;
  options.connect = [&](std::size_t server) { return servers.connect(server); };
  options.placement.partitioner = strategies::FixedShards{2};
  options.chunk_bytes = 1000;
  options.deadline = 20s;
  options.log = engine::Log("", engine::Log::Level::kError);
  strategies::ParameterServer strategy(options);
  const Table test = small_data();
  Job job;
  job.accumulate = way.accumulate;
  job.test = &test;
  Outcome outcome;
  outcome.history = train(strategy, job, &outcome);
  outcome.weights.push_back(strategy.weights());
  return outcome;
}

TEST(GpuServers, WorkersOnAGpuHaveTheLossesOfThoseOnTheProcessor) {
  const auto processor = engine::cpu_device();
  for (const Way& way :
       {Way{"synchronous", true, 2}, Way{"synchronous, micro-batches", true, 2, 2},
        Way{"asynchronous", false}, Way{"asynchronous, pulled", false, 1, 1, false}}) {
    SCOPED_TRACE(way.name);
    const Outcome there = train_on(*processor, way);
    for (const std::uint64_t seed : {1, 2}) {
      const auto gpu = engine::cuda::fake_device({.seed = seed});
      const Outcome here = train_on(*gpu, way);
      EXPECT_LT(relative(here.weights[0], there.weights[0]), 1e-5);
      ASSERT_EQ(here.losses.size(), there.losses.size());
      for (std::size_t i = 0; i < here.losses.size(); ++i)
        EXPECT_NEAR(here.losses[i], there.losses[i], 1e-5 * std::abs(there.losses[i]));
      EXPECT_NEAR(here.history.test->loss, there.history.test->loss, 1e-5);
    }
  }
}

TEST(GpuServersDeathTest, ServersOfThisProcessKeepTheirVariablesOnTheHost) {
  EXPECT_DEATH(strategies::LocalCluster(1, *engine::cuda::fake_device(), DType::kFloat32),
               "in memory of the host");
}

TEST(GpuServers, WithoutATypeTheyTrainInOneThatServersKeep) {
  const auto gpu = engine::cuda::fake_device(), processor = engine::cpu_device();
  EXPECT_EQ(strategies::kept_dtype(*gpu), DType::kFloat32);
  EXPECT_EQ(strategies::kept_dtype(*processor), processor->default_dtype());
}

}  // namespace gpu_servers_test
}  // namespace lockstep::test
