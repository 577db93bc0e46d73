// SPDX-License-Identifier: MIT
// GPU costs that are measured on fake GPUs. Times mean nothing there, so the tests cover what is
// measured, whether it is kept, and which jobs use it.
#include "collectives/job/gpu_calibration.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "collectives/cost/gpu_costs.h"
#include "collectives/topology/topology.h"
#include "engine/cpu/cpu_device.h"
#include "strategies/synchronous/mirrored.h"
#include "test/engine/checkpoint/scenario.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/observed_device.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace gpu_calibration_test {

using collectives::Calibration;
using collectives::GpuCalibration;
using collectives::GpuPaces;
using collectives::HostCosts;
using collectives::LinkClass;
using collectives::Topology;
using engine::GpuLink;
using engine::GpuTopology;
using engine::cuda::FakeDevices;

collectives::GpuProbes few_bytes() {
  collectives::GpuProbes probes;
  probes.bytes = probes.between = 4096;
  probes.most = 2, probes.kernels = 4, probes.repetitions = 3;
  return probes;
}

// Returns this many GPUs: 0 and 1 have a link, all others go over PCI Express.
GpuTopology linked(int count) {
  GpuTopology topology;
  for (int gpu = 0; gpu < count; ++gpu) topology.gpus.push_back({.index = gpu});
  for (std::size_t a = 0; a < topology.gpus.size(); ++a)
    for (std::size_t b = a + 1; b < topology.gpus.size(); ++b)
      topology.pairs.push_back({.a = a,
                                .b = b,
                                .link = b == 1 ? GpuLink::kNvlink : GpuLink::kHostBridge,
                                .links = b == 1 ? 4 : 0,
                                .generation = b == 1 ? 4 : 0,
                                .reach = true});
  return topology;
}

GpuCalibration on(FakeDevices& gpus, const std::vector<std::size_t>& which,
                  const std::filesystem::path& cache = {}) {
  GpuCalibration how;
  for (const std::size_t gpu : which) how.devices.push_back(&gpus[gpu]);
  how.gpus = linked(3);
  how.cache = cache;
  how.probes = few_bytes();
  return how;
}

Topology job_of(const GpuCalibration& how) {
  Topology topology;
  topology.hosts.push_back({.name = "h"});
  topology.processes.push_back({.replicas = int(how.devices.size())});
  for (engine::Device* device : how.devices)
    topology.ranks.push_back({.device = to_string(device->id())});
  return topology;
}

TEST(GpuCalibration, EachMemoryAndEachWayInBothDirectionsIsMeasured) {
  FakeDevices gpus({.gpus = 3});
  std::vector<std::unique_ptr<engine::Ops>> ops;
  std::vector<collectives::GpuRank> ranks;
  for (std::size_t gpu = 0; gpu < 3; ++gpu) {
    for (std::size_t other = 0; other < 3; ++other) ASSERT_TRUE(gpus[gpu].reach(gpus[other]));
    ops.push_back(gpus[gpu].ops(engine::DType::kFloat32, {}));
    ranks.push_back({ops.back().get(), gpu, to_string(gpus[gpu].id())});
  }
  const GpuPaces paces = collectives::measure_gpus(ranks, few_bytes());
  ASSERT_EQ(paces.memory.size(), 3u);
  ASSERT_EQ(paces.links.size(), 9u);
  for (std::size_t a = 0; a < 3; ++a) {
    EXPECT_GT(paces.memory[a], 0);
    for (std::size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(paces.links[a * 3 + b] > 0, a != b) << a << " to " << b;
    }
  }
  EXPECT_GT(paces.port, 0);
  EXPECT_GT(paces.kernel, 0);
  EXPECT_GE(paces.signal, 0);
}

TEST(GpuCalibration, OfOneGpuThereIsNoPortAndRanksOnItAreMeasured) {
  FakeDevices gpus({.gpus = 1});
  const auto first = gpus[0].ops(engine::DType::kFloat32, {});
  const auto second = gpus[0].ops(engine::DType::kFloat32, {});
  const collectives::GpuRank ranks[] = {{first.get(), 0, "cuda:0"}, {second.get(), 0, "cuda:0"}};
  const GpuPaces paces = collectives::measure_gpus(ranks, few_bytes());
  EXPECT_EQ(paces.memory.size(), 1u);
  EXPECT_EQ(paces.port, 0);
  const HostCosts costs = collectives::gpu_costs({}, {"cuda:0", "cuda:0"}, paces);
  EXPECT_NE(costs.link, LinkClass::kMemory);
  EXPECT_EQ(costs.passes[0].core, paces.memory[0] / 2);
  ASSERT_EQ(costs.links.size(), 1u);
  EXPECT_EQ(costs.links[0].bandwidth, paces.memory[0] / 2);
}

// A path is named if it carries other numbers. The test uses CPU kernels, which can be told to go
// wrong.
TEST(GpuCalibration, AWayThatCarriesOtherNumbersIsNamed) {
  const auto processor = engine::cpu_device();
  const auto sound = processor->ops(engine::DType::kFloat32, {});
  const auto wrong = observed(processor->ops(engine::DType::kFloat32, {}),
                              [](const engine::ReduceArguments& arguments) {
                                auto* const numbers = const_cast<std::byte*>(arguments.from[0]);
                                const float of_first = 1, another = 9;
                                if (std::memcmp(numbers, &of_first, sizeof of_first) == 0)
                                  std::memcpy(numbers, &another, sizeof another);
                              });
  const collectives::GpuRank ranks[] = {{sound.get(), 0, "cuda:0"}, {wrong.get(), 1, "cuda:1"}};
  try {
    collectives::measure_gpus(ranks, few_bytes());
    FAIL() << "nobody noticed";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kDevice);
    EXPECT_NE(
        std::string(error.what()).find("cuda:1 copied 1 from cuda:0 to cuda:1, and there it is 9"),
        std::string::npos)
        << error.what();
  }
}

// All numbers differ, so that none can be taken for another.
TEST(GpuCalibration, WhatWasMeasuredStandsWhereTheSimulatorLooksForIt) {
  GpuPaces paces;
  paces.memory = {3e12, 2e12, 4e12};
  paces.links = {0, 90e9, 21e9, 80e9, 0, 22e9, 23e9, 24e9, 0};
  paces.port = 15e9;
  paces.kernel = 5e-6;
  paces.signal = 2e-6;
  const HostCosts costs = collectives::gpu_costs(linked(3), {"cuda:0", "cuda:1", "cuda:2"}, paces);
  EXPECT_EQ(costs.link, LinkClass::kNvlink);
  EXPECT_EQ(costs.passes[0].core, 2e12) << "the slowest";
  ASSERT_EQ(costs.links.size(), 1u);
  EXPECT_EQ(costs.links[0], (collectives::PeerLink{0, 1, 80e9})) << "the slower direction";
  EXPECT_EQ(costs.port, 15e9);
  EXPECT_EQ(costs.reduction, 5e-6);
  EXPECT_EQ(costs.signal, 2e-6);
  EXPECT_EQ(costs.block, 0);
  paces.port = 60e9;
  EXPECT_EQ(collectives::gpu_costs(linked(3), {"cuda:0", "cuda:1", "cuda:2"}, paces).port, 21e9)
      << "no more than the slowest way alone";
}

TEST(GpuCalibration, WhatWasMeasuredIsKeptForTheSameGpusAlone) {
  const TemporaryFolder folder;
  FakeDevices gpus({.gpus = 3});
  const GpuCalibration how = on(gpus, {0, 1}, folder.path());
  EXPECT_FALSE(collectives::stored_gpu_costs(job_of(how), how).cached)
      << "nothing was measured yet";
  const Calibration first = collectives::calibrate_gpus(job_of(how), how);
  EXPECT_TRUE(first.kept);
  EXPECT_FALSE(first.cached);
  EXPECT_EQ(first.topology.costs_are, "measured");
  EXPECT_EQ(first.topology.hosts[0].costs.link, LinkClass::kNvlink);
  const Calibration again = collectives::stored_gpu_costs(job_of(how), how);
  EXPECT_TRUE(again.cached);
  EXPECT_EQ(again.topology, first.topology);
  EXPECT_TRUE(collectives::calibrate_gpus(job_of(how), how).cached);

  GpuCalibration fresh = how;
  fresh.fresh = true;
  EXPECT_FALSE(collectives::calibrate_gpus(job_of(fresh), fresh).cached);
  const GpuCalibration others = on(gpus, {0, 2}, folder.path());
  EXPECT_FALSE(collectives::stored_gpu_costs(job_of(others), others).cached) << "other GPUs";
  const GpuCalibration more = on(gpus, {0, 1, 1}, folder.path());
  EXPECT_FALSE(collectives::stored_gpu_costs(job_of(more), more).cached) << "other ranks";
  GpuCalibration links = how;
  links.gpus.pairs[0].links = 2;
  EXPECT_FALSE(collectives::stored_gpu_costs(job_of(links), links).cached) << "other links";
}

TEST(GpuCalibration, AnotherDriverHasCostsOfItsOwn) {
  const TemporaryFolder folder;
  for (const int driver : {13000, 13010}) {
    FakeDevices gpus({.gpus = 2, .driver_version = driver});
    const GpuCalibration how = on(gpus, {0, 1}, folder.path());
    EXPECT_FALSE(collectives::calibrate_gpus(job_of(how), how).cached) << driver;
  }
}

TEST(GpuCalibration, ADamagedFileIsMeasuredAnewAndNamed) {
  const TemporaryFolder folder;
  FakeDevices gpus({.gpus = 2});
  const GpuCalibration how = on(gpus, {0, 1}, folder.path());
  collectives::calibrate_gpus(job_of(how), how);
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) file = entry.path();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const Calibration stored = collectives::stored_gpu_costs(job_of(how), how);
  EXPECT_FALSE(stored.cached);
  EXPECT_NE(stored.note.find(file.string() + " is ignored, and costs are assumed"),
            std::string::npos)
      << stored.note;
  EXPECT_TRUE(collectives::calibrate_gpus(job_of(how), how).kept);
  EXPECT_TRUE(collectives::stored_gpu_costs(job_of(how), how).cached);
}

TEST(GpuCalibration, GpusThatDoNotReachEachOtherAreNamed) {
  FakeDevices gpus({.gpus = 2, .apart = {{1, 0}}});
  const GpuCalibration how = on(gpus, {0, 1});
  try {
    collectives::calibrate_gpus(job_of(how), how);
    FAIL() << "nobody noticed";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    EXPECT_NE(std::string(error.what()).find("cuda:1 and cuda:0 do not reach"), std::string::npos);
  }
}

// Returns explain() of a job on these GPUs for which no plan was requested.
std::string explained(FakeDevices& gpus, const std::vector<std::size_t>& which,
                      const std::filesystem::path& cache, bool measured = true) {
  strategies::SynchronousOptions options = replicas(int(which.size()));
  for (std::size_t i = 0; i < which.size(); ++i) options.devices[i] = &gpus[which[i]];
  if (collectives::each_gpu({to_string(gpus[which[0]].id()), to_string(gpus[which[1]].id())})
          .size() > 1)
    options.gpus = linked(3);
  options.measured = measured;
  options.cost_cache = cache;
  options.step.dtype = engine::DType::kFloat32;
  strategies::Mirrored strategy(std::move(options));
  Job job;
  job.dtype = engine::DType::kFloat32;
  job.steps = 1;
  train(strategy, job, nullptr);
  return strategy.explain();
}

TEST(GpuCalibration, AStartUsesWhatIsKeptAndSaysSo) {
  const TemporaryFolder folder;
  FakeDevices gpus({.gpus = 3});
  const std::string assumed = explained(gpus, {0, 1}, folder.path());
  EXPECT_NE(
      assumed.find("costs of ranks and links: assumed, as links of such GPUs are specified, "
                   "and not measured (lockstep plan with these devices measures and keeps them)"),
      std::string::npos)
      << assumed;
  EXPECT_NE(explained(gpus, {0, 0}, folder.path())
                .find("assumed, since none are kept of such GPUs (lockstep plan"),
            std::string::npos);
  for (const std::vector<std::size_t>& which : {std::vector<std::size_t>{0, 1}, {0, 0}}) {
    GpuCalibration how = on(gpus, which, folder.path());
    if (which[0] == which[1]) how.gpus = {};
    // The topology is the one that the job discovers.
    const auto alone = collectives::single_process();
    std::vector<std::string> names;
    for (engine::Device* device : how.devices) names.push_back(to_string(device->id()));
    collectives::calibrate_gpus(collectives::discover(*alone, names), how);
    const std::string text = explained(gpus, which, folder.path());
    EXPECT_NE(
        text.find("costs of ranks and links: measured before, and read from " + folder.path()),
        std::string::npos)
        << text;
    EXPECT_EQ(explained(gpus, which, folder.path(), false).find("measured before"),
              std::string::npos)
        << "nobody asked for it";
  }
}

}  // namespace gpu_calibration_test
}  // namespace lockstep::test
