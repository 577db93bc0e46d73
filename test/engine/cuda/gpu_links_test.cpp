// SPDX-License-Identifier: MIT
#include "engine/cuda/gpu_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/cuda/fake_gpu.h"
#include "test/engine/cuda/fake_nvml.h"

namespace lockstep::engine::cuda {
namespace gpu_links_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Creates a folder of PCI devices with the NUMA nodes of fake GPUs.
class Folder {
 public:
  explicit Folder(const std::vector<int>& nodes) {
    std::filesystem::remove_all(path);
    for (std::size_t gpu = 0; gpu < nodes.size(); ++gpu) {
      const auto device = path / fmt::format("0000:{:02x}:00.0", gpu);
      std::filesystem::create_directories(device);
      std::ofstream(device / "numa_node") << nodes[gpu] << "\n";
    }
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "pci_devices";
};

FakeNvml::Gpu on_switches(int node, std::size_t links) {
  return {.node = node, .bridge = node, .links = std::vector<FakeNvml::Link>(links)};
}

FakeNvml::Link to_gpu(int gpu, unsigned version = 4) {
  return {.end = NvmlLinkEnd::kGpu, .to = gpu, .version = version};
}

// Each of eight GPUs has 18 links to switches; four GPUs share a NUMA node.
TEST(GpuLinks, SwitchesJoinAllOfAHost) {
  std::vector<FakeNvml::Gpu> gpus;
  for (int gpu = 0; gpu < 8; ++gpu) gpus.push_back(on_switches(gpu / 4, 18));
  const FakeGpu fake({.gpus = 8});
  const FakeNvml nvml(gpus);
  const Nvml table = nvml.table();
  const Folder folder({0, 0, 0, 0, 1, 1, 1, 1});
  const GpuTopology found = gpu_links(fake.driver(), &table, "", folder.path);
  ASSERT_EQ(found.pairs.size(), 28U);
  for (const GpuTopology::Pair& pair : found.pairs) {
    EXPECT_EQ(pair.link, GpuLink::kNvswitch);
    EXPECT_EQ(pair.links, 18);
    EXPECT_EQ(pair.generation, 4);
    EXPECT_TRUE(pair.reach);
  }
  EXPECT_EQ(found.gpus[5].bus_id, "0000:05:00.0");
  EXPECT_EQ(found.gpus[5].memory_bandwidth, 2e9 * 2 * 512);
  EXPECT_THAT(describe(found),
              ElementsAre("NVSwitch, 18 links of NVLink 4: each of 8 GPUs with each",
                          "cuda:0 cuda:1 cuda:2 cuda:3 on NUMA node 0; cuda:4 cuda:5 cuda:6 cuda:7 "
                          "on NUMA node 1"));
  EXPECT_EQ(nvml.starts(), 0) << "NVML was not ended";
}

// There are two processors. GPUs 0 and 1 share a switch, GPU 2 has another bridge, and GPU 3 is at
// the other processor.
TEST(GpuLinks, WithoutNvlinkTheWayOverPciExpressIsTold) {
  const FakeGpu fake({.gpus = 4, .apart = {{3, 0}}});
  const FakeNvml nvml({{}, {}, {.bridge = 1, .pcie_switch = 1}, {.node = 1, .bridge = 2}});
  const Nvml table = nvml.table();
  const Folder folder({0, 0, 0, 1});
  const GpuTopology found = gpu_links(fake.driver(), &table, "", folder.path);
  EXPECT_THAT(describe(found),
              ElementsAre("PCI Express through switches: cuda 0-1",
                          "PCI Express through a processor: cuda 0-2 1-2",
                          "PCI Express from one NUMA node to another, no access to each other's "
                          "memory: cuda 0-3",
                          "PCI Express from one NUMA node to another: cuda 1-3 2-3",
                          "cuda:0 cuda:1 cuda:2 on NUMA node 0; cuda:3 on NUMA node 1"));
}

TEST(GpuLinks, BridgesOfOneProcessorAreOneWay) {
  const FakeGpu fake({.gpus = 2});
  const FakeNvml nvml({{.pcie_switch = 0}, {.pcie_switch = 1}});
  const Nvml table = nvml.table();
  EXPECT_EQ(gpu_links(fake.driver(), &table, "", "").pairs[0].link, GpuLink::kHostBridge);
}

// Direct links are counted, and each pair has its own path; inactive links do not count.
TEST(GpuLinks, DirectLinksAreCountedForEachPair) {
  const FakeGpu fake({.gpus = 3});
  FakeNvml::Link down = to_gpu(2);
  down.active = false;
  const FakeNvml nvml({{.links = {to_gpu(1), down, to_gpu(1), to_gpu(1)}},
                       {.links = {to_gpu(0), to_gpu(0), to_gpu(2, 2), to_gpu(0)}},
                       {.links = {down, to_gpu(1, 2)}}});
  const Nvml table = nvml.table();
  EXPECT_THAT(describe(gpu_links(fake.driver(), &table, "", "")),
              ElementsAre("NVLink 3, 3 links: cuda 0-1", "PCI Express through switches: cuda 0-2",
                          "NVLink 2, 1 link: cuda 1-2", "cuda:0 cuda:1 cuda:2 on no NUMA node"));
}

TEST(GpuLinks, OneGpuHasNoWays) {
  const FakeGpu fake;
  const FakeNvml nvml({on_switches(0, 18)});
  const Nvml table = nvml.table();
  const Folder folder({1});
  const GpuTopology found = gpu_links(fake.driver(), &table, "", folder.path);
  EXPECT_EQ(found.gpus.size(), 1U);
  EXPECT_EQ(found.gpus[0].numa_node, 1);
  EXPECT_THAT(found.pairs, IsEmpty());
  EXPECT_THAT(describe(found), IsEmpty());
}

TEST(GpuLinks, WithoutNvmlTheDriverTellsWhatItKnows) {
  const FakeGpu fake({.gpus = 3, .apart = {{1, 2}}});
  const Folder folder({-1, 0});
  const GpuTopology found =
      gpu_links(fake.driver(), nullptr, "libnvidia-ml.so.1 is not there", folder.path);
  EXPECT_THAT(describe(found),
              ElementsAre("a way that the driver ranks 0 (0 is the fastest): cuda 0-1",
                          "a way that the driver ranks 1 (0 is the fastest): cuda 0-2",
                          "a way that the driver ranks 1 (0 is the fastest), no access to each "
                          "other's memory: cuda 1-2",
                          "cuda:0 cuda:2 on no NUMA node; cuda:1 on NUMA node 0",
                          "libnvidia-ml.so.1 is not there"));
}

TEST(GpuLinks, WhatNvmlDoesNotAnswerIsANote) {
  const FakeGpu fake({.gpus = 2});
  {
    const FakeNvml nvml({{}, {}}, FakeNvml::kError);
    const Nvml table = nvml.table();
    const GpuTopology found = gpu_links(fake.driver(), &table, "", "");
    EXPECT_EQ(found.note, "NVML could not be started: Unknown Error");
    EXPECT_EQ(found.pairs[0].link, GpuLink::kUnknown);
    EXPECT_TRUE(found.pairs[0].reach);
    EXPECT_EQ(nvml.starts(), 0);
  }
  const FakeNvml nvml({{}, {.known = false}});
  const Nvml table = nvml.table();
  const GpuTopology found = gpu_links(fake.driver(), &table, "", "");
  EXPECT_EQ(found.note, "NVML does not know cuda:1: Not Found");
  EXPECT_EQ(found.pairs[0].link, GpuLink::kUnknown);
}

TEST(GpuLinks, GpusThatCannotBeUsedAreLeftOut) {
  const FakeGpu fake({.gpus = 2, .capability = 70});
  EXPECT_THAT(gpu_links(fake.driver(), nullptr, "", "").gpus, IsEmpty());
}

// If the machine has the library, its functions are found; otherwise the error is one line.
TEST(Nvml, IsOpenedOrSaidToBeMissing) {
  try {
    EXPECT_NE(load_nvml().init, nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("libnvidia-ml.so.1"));
  }
}

TEST(Nvml, TellsItsVersionOrWhyItCannotBeStarted) {
  const FakeNvml good({});
  EXPECT_EQ(version_text(good.table()), "NVML 13.580.65");
  EXPECT_EQ(good.starts(), 0);
}

TEST(Nvml, ThatCannotBeStartedHasNoVersion) {
  const FakeNvml bad({}, FakeNvml::kError);
  EXPECT_EQ(version_text(bad.table()), "NVML, which cannot be started: Unknown Error");
  EXPECT_EQ(bad.starts(), 0);
}

}  // namespace gpu_links_test
}  // namespace lockstep::engine::cuda
