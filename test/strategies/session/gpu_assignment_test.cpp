// SPDX-License-Identifier: MIT
// The GPUs of a host are assigned to its processes in order. Each process has its own GPUs, all are
// used, and none is idle while two replicas share another.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/ops.h"
#include "engine/runtime/devices.h"
#include "strategies/session/factories.h"
#include "strategies/session/gpu_assignment.h"

namespace lockstep::strategies {
namespace gpu_assignment_test {

using Gpus = std::vector<int>;

std::string refusal(const GpuAssignment& assignment) {
  try {
    assigned_gpus(assignment);
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "none";
}

TEST(GpuAssignment, OneProcessAGpuTakesTheGpuOfItsLocalRank) {
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(assigned_gpus({.gpus = 4, .number = rank, .among = 4}), Gpus{rank});
}

TEST(GpuAssignment, AProcessAloneHasAReplicaOnEach) {
  EXPECT_EQ(assigned_gpus({.gpus = 3}), (Gpus{0, 1, 2}));
}

TEST(GpuAssignment, AllGpusAreAssignedOnceHoweverManyShareThem) {
  for (int gpus = 1; gpus <= 9; ++gpus) {
    for (int processes = 1; processes <= gpus; ++processes) {
      Gpus all;
      std::size_t least = 99, most = 0;
      for (int rank = 0; rank < processes; ++rank) {
        const Gpus mine = assigned_gpus({.gpus = gpus, .number = rank, .among = processes});
        all.insert(all.end(), mine.begin(), mine.end());
        least = std::min(least, mine.size()), most = std::max(most, mine.size());
      }
      ASSERT_EQ(all.size(), std::size_t(gpus));
      for (int gpu = 0; gpu < gpus; ++gpu) EXPECT_EQ(all[std::size_t(gpu)], gpu);
      EXPECT_LE(most - least, 1u) << processes << " of " << gpus;
    }
  }
}

TEST(GpuAssignment, ReplicasThatWereAskedForUseAllOfTheShareBeforeTwoShareOne) {
  EXPECT_EQ(assigned_gpus({.gpus = 4, .number = 1, .among = 2, .replicas = 1}), Gpus{2});
  EXPECT_EQ(assigned_gpus({.gpus = 4, .number = 1, .among = 2, .replicas = 2}), (Gpus{2, 3}));
  EXPECT_EQ(assigned_gpus({.gpus = 4, .number = 1, .among = 2, .replicas = 5}),
            (Gpus{2, 2, 2, 3, 3}));
}

TEST(GpuAssignment, MoreProcessesThanGpusAreRefusedWithWhatWouldBeRight) {
  const std::string text = refusal({.gpus = 2, .number = 0, .among = 3});
  EXPECT_EQ(
      text,
      "3 processes on this host are too many for one of its 2 GPUs each: start at most 2 here "
      "(mpirun --map-by ppr:2:node), or name a device that they may share, such as cuda:0");
  EXPECT_NE(refusal({.gpus = 1, .among = 3}), "none");
}

TEST(GpuAssignment, WithoutGpusTheDeviceIsLookedForAndTheErrorSaysWhatThereIs) {
  Session session(0, nullptr);
  if (!session.gpus().empty()) GTEST_SKIP() << "this machine has a GPU";
  const StrategyOptions options = with_devices(session, {.replicas = 2, .device = "cuda"});
  EXPECT_EQ(options.devices, (std::vector<std::string>{"cuda", "cuda"}));
  try {
    devices_of(session, options);
    ADD_FAILURE() << "there is one";
  } catch (const engine::Error& error) {
    EXPECT_NE(std::string(error.what()).find("there is no device cuda:0"), std::string::npos);
  }
}

// Simulates a GPU that its driver lists but that cannot compute, like a fake one.
class BrokenDevice final : public engine::Device {
 public:
  engine::DeviceId id() const override { return {"cuda", 0}; }
  std::string description() const override { return "broken"; }
  std::string instructions() const override { return ""; }
  engine::DType default_dtype() const override { return engine::DType::kFloat32; }
  bool supports(engine::DType) const override { return true; }
  engine::Buffer allocate(std::size_t bytes) override { return engine::Buffer(bytes); }
  std::unique_ptr<engine::Stream> stream() override { return nullptr; }
  std::unique_ptr<engine::Ops> ops(engine::DType, engine::OpsOptions) override {
    engine::fail(engine::Code::kUnavailable, "libcublasLt.so.13 cannot be opened");
  }
};

TEST(GpuAssignment, ADeviceWorksWhereASumOnItIsRight) {
  for (const auto& device : engine::host_devices()) EXPECT_EQ(engine::fault_of(*device), "");
  BrokenDevice broken;
  EXPECT_EQ(engine::fault_of(broken), "libcublasLt.so.13 cannot be opened");
}

TEST(GpuAssignment, WithoutAGpuTheKindThatIsChosenIsTheProcessor) {
  std::string said;
  const engine::Log log("", engine::Log::Level::kDebug,
                        [&](engine::Log::Level, std::string_view line) {
                          if (line.starts_with("device: ")) said += line;
                        });
  Session session(0, nullptr, {.log = log});
  EXPECT_EQ(with_kind(session, {.device = "reference"}).device, "reference");
  EXPECT_EQ(said, "");
  if (!session.gpus().empty()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(with_kind(session, {.device = "auto"}).device, "cpu");
  EXPECT_EQ(said, "device: cpu, because no GPU was found");
}

TEST(GpuAssignment, OtherDevicesAreAsManyAsTheReplicas) {
  Session session(0, nullptr);
  EXPECT_EQ(with_devices(session, {}).devices, std::vector<std::string>{"cpu"});
  EXPECT_EQ(with_devices(session, {.replicas = 2, .device = "reference"}).devices,
            (std::vector<std::string>{"reference", "reference"}));
  EXPECT_EQ(with_devices(session, {.devices = {"cpu:0", "cpu:0"}}).devices.size(), 2u);
  EXPECT_THROW(with_devices(session, {.replicas = 0}), engine::Error);
}

}  // namespace gpu_assignment_test
}  // namespace lockstep::strategies
