// SPDX-License-Identifier: MIT
// Tests `lockstep bench --device` on fake GPUs, which run their streams as late as possible: sums
// are checked, and figures have their documented meaning. Times are meaningless here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "collectives/algorithms/registry.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/observed_device.h"
#include "tools/bench/batches.h"
#include "tools/bench/device_ranks.h"
#include "tools/bench/row.h"

namespace lockstep::tools::bench {
namespace bench_devices_test {

using engine::DType;
using engine::cuda::FakeDevices;
using testing::HasSubstr;

constexpr std::size_t kCount = 5000;  // not a multiple of a block

Setting small_setting(DType dtype, Check check = Check::kAll) {
  Setting setting;
  setting.task.dtype = dtype;
  setting.check = check;
  setting.iterations = 3;
  return setting;
}

DeviceSetting on(std::vector<engine::Device*> devices) {
  DeviceSetting setting;
  setting.devices = std::move(devices);
  setting.copied = 8192;
  setting.batch_seconds = 1e-6;
  return setting;
}

TEST(BenchDevices, SumsOfEveryAlgorithmAreExactOnOneGpuAndOnTwo) {
  FakeDevices gpus({.gpus = 2});
  const std::vector<engine::Device*> ranks_on[] = {{&gpus[0], &gpus[0]},
                                                   {&gpus[0], &gpus[1], &gpus[0]}};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const auto& devices : ranks_on) {
      DeviceRanks ranks(small_setting(dtype), on(devices));
      Task task;
      task.host.assign(devices.size(), 0);
      for (const std::string& algorithm : asked(task, "all", kCount)) {
        const Measured found = ranks.measure(algorithm, kCount);
        EXPECT_EQ(found.wrong, 0u) << algorithm;
        EXPECT_EQ(found.iterations, 3);
        EXPECT_GT(found.in_place.least, 0);
        EXPECT_LE(found.in_place.least, found.in_place.median);
        EXPECT_LE(found.in_place.median, found.in_place.p99);
        EXPECT_FALSE(found.out_of_place || found.rival || found.rival_wrong);
        const double busiest = double(std::ranges::count(devices, &gpus[0]));
        const double moved = 2 * busiest * kCount * double(size_of(dtype));
        EXPECT_NEAR(*found.roofline_us, moved / found.copy_gb_s / 1e3, 1e-6 * *found.roofline_us);
      }
    }
  }
}

// The kernels of processors can inject errors: each rank's slice begins with another number.
TEST(BenchDevices, WrongSumsAreCountedOnEachReplicaAndInEachCheck) {
  test::ObservedDevice device(engine::cpu_device(), [](const engine::ReduceArguments& arguments) {
    const float another = 100;
    std::memcpy(const_cast<std::byte*>(arguments.from[0]), &another, sizeof another);
  });
  const auto wrong = [&](Check check) {
    return DeviceRanks(small_setting(DType::kFloat32, check), on({&device, &device}))
        .measure("direct", kCount)
        .wrong;
  };
  EXPECT_EQ(wrong(Check::kAll), 2u * 2 * 2);
  EXPECT_EQ(wrong(Check::kLast), 2u * 2);
  EXPECT_EQ(wrong(Check::kNone), std::nullopt);
}

struct Idle : collectives::DeviceCommunicator {
  MOCK_METHOD(int, rank, (), (const, override));
  MOCK_METHOD(int, ranks, (), (const, override));
  MOCK_METHOD(void, all_reduce, (std::byte*, std::size_t, DType, void*), (override));
  MOCK_METHOD(void, reduce_scatter, (std::byte*, std::size_t, DType, void*), (override));
  MOCK_METHOD(void, all_gather, (std::byte*, std::size_t, DType, void*), (override));
  MOCK_METHOD(void, broadcast, (std::byte*, std::size_t, DType, int, void*), (override));
  MOCK_METHOD(void, add_memory, (std::byte*, std::size_t), (override));
  MOCK_METHOD(void, remove_memory, (const std::byte*), (override));
  MOCK_METHOD(engine::Buffer, allocate, (std::size_t), (override));
  MOCK_METHOD(void, check, (), (override));
  MOCK_METHOD(void, wait, (const std::function<bool()>&), (override));
  MOCK_METHOD(void, abort, (const engine::Error&), (noexcept, override));
};

TEST(BenchDevices, ARivalThatAddsNothingIsWrongAndLockstepIsNot) {
  FakeDevices gpus({.gpus = 2});
  DeviceSetting setting = on({&gpus[0], &gpus[1]});
  const NcclRanks idle(
      setting.devices,
      {{}, [](auto&, const auto&) { return std::make_unique<testing::NiceMock<Idle>>(); }},
      setting.deadline);
  setting.nccl = &idle;
  const Measured found =
      DeviceRanks(small_setting(DType::kFloat32), setting).measure("ring", kCount);
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_GT(found.rival_wrong, 2 * kCount) << "of two replicas, in two checks";
  EXPECT_GT(found.rival->median, 0);
}

TEST(BenchDevices, NcclTakesOneRankOnEachGpu) {
  FakeDevices gpus({.gpus = 2});
  const auto processor = engine::cpu_device();
  EXPECT_EQ(NcclRanks::refusal({&gpus[0], &gpus[1]}), "");
  EXPECT_THAT(NcclRanks::refusal({&gpus[0], &gpus[1], &gpus[0]}),
              HasSubstr("ranks 0 and 2 are both on cuda:0"));
  EXPECT_THAT(NcclRanks::refusal({processor.get()}), HasSubstr("cpu:0 is not a GPU"));
}

TEST(BenchDevices, ARankThatCannotOpenNcclEndsAllOfThemAtOnce) {
  FakeDevices gpus({.gpus = 2});
  std::optional<engine::Code> heard;
  const auto open = [&](collectives::Bootstrap& bootstrap, const auto&) {
    if (bootstrap.process() == 1) engine::fail(engine::Code::kDevice, "no memory");
    try {
      bootstrap.all_gather("", "a meeting");
    } catch (const engine::Error& error) {
      heard = error.code();
      throw;
    }
    return std::make_unique<testing::NiceMock<Idle>>();
  };
  EXPECT_THROW(NcclRanks({&gpus[0], &gpus[1]}, {{}, open}, std::chrono::seconds(5)), engine::Error);
  EXPECT_EQ(heard, engine::Code::kDevice) << "not that it waited in vain";
}

TEST(BenchDevices, ADeviceReceivesOverItsDirectLinksAndItsPort) {
  FakeDevices gpus({.gpus = 3});
  collectives::HostCosts costs;
  costs.links = {{0, 1, 40e9}, {0, 2, 7e9}};  // ranks 0 and 2 share a GPU
  costs.port = 5e9;
  EXPECT_EQ(received_rate({&gpus[0], &gpus[1], &gpus[0]}, costs), 45e9) << "of GPU 1";
  costs.port = 0;
  EXPECT_EQ(received_rate({&gpus[0], &gpus[0], &gpus[0]}, costs), 0) << "within one GPU";
}

// The links are far slower than memory.
TEST(BenchDevices, TheRooflineOfSeveralGpusIsThatOfTheirLinksWhereTheseAreSlower) {
  FakeDevices gpus({.gpus = 2});
  DeviceSetting setting = on({&gpus[0], &gpus[1]});
  setting.costs.port = 10;  // bytes per second
  const Measured found =
      DeviceRanks(small_setting(DType::kFloat32), setting).measure("direct", kCount);
  EXPECT_NEAR(*found.roofline_us, 1e6 * kCount * 4 / 10, 1);
}

TEST(BenchDevices, ALineSaysWhereRanksAreAndWhatNcclTakes) {
  FakeDevices gpus({.gpus = 1});
  DeviceRanks ranks(small_setting(DType::kFloat32), on({&gpus[0], &gpus[0]}));
  Row row;
  row.task.host = {0, 0};
  row.count = kCount, row.bytes = 4 * kCount;
  row.choice = {"direct", "it was asked for"};
  row.devices = "cuda:0,cuda:0";
  row.measured = ranks.measure("direct", kCount);
  const auto json = nlohmann::json::parse(to_text(row, Form::kJson, Rival::kNccl));
  EXPECT_EQ(json["devices"], "cuda:0,cuda:0");
  EXPECT_EQ(json["wrong"], 0);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_TRUE(json["out_of_place_us"].is_null() && json["nccl_us"].is_null());
  EXPECT_NEAR(json["roofline_percent"].get<double>(),
              100 * 4.0 * 4 * kCount / 1e3 / json["copy_gb_s"].get<double>() /
                  json["in_place_us"].get<double>(),
              1e-6);
  EXPECT_EQ(json.contains("mpi_us"), false);
  EXPECT_THAT(heading(Form::kTable, Rival::kNccl), HasSubstr("NCCL us"));
  EXPECT_THAT(heading(Form::kTable, Rival::kMpi), HasSubstr("MPI us"));
}

TEST(BenchDevices, BatchesTakeTurnsAndAreAsLongAsAsked) {
  std::string order;
  Batches fast{[&](int) { return order += 'f', 1e-3; }};
  Batches slow{[&](int) { return order += 's', 1.0; }, 50};
  Batches few{[&](int) { return order += 'w', 1e-9; }, 50};
  time_batches({&fast, &slow, &few}, 2, 0.02);
  EXPECT_EQ(order, "ffsswwfswfsw");
  EXPECT_EQ(fast.calls, 20);
  EXPECT_EQ(slow.calls, 1);
  EXPECT_EQ(few.calls, 50);
  EXPECT_EQ(fast.samples.size(), 2u);
}

TEST(BenchDevices, RanksThatCannotBeAreRefused) {
  FakeDevices gpus({.gpus = 1});
  for (const std::size_t ranks : {1, 17})
    EXPECT_THROW(DeviceRanks(small_setting(DType::kFloat32),
                             on(std::vector<engine::Device*>(ranks, &gpus[0]))),
                 engine::Error);
}

}  // namespace bench_devices_test
}  // namespace lockstep::tools::bench
