// SPDX-License-Identifier: MIT
// Tests NCCL next to lockstep in `lockstep bench --devices`, with fake GPUs and a fake NCCL whose
// sums run when all streams have reached them.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "test/collectives/nccl/stream_meeting.h"
#include "test/engine/cuda/fake_devices.h"
#include "tools/bench/device_ranks.h"

namespace lockstep::tools::bench {
namespace bench_nccl_test {

using collectives::nccl::FakeNccl;

TEST(BenchNccl, ItsSumsAreCheckedAndTimedInTurnAndItEndsInOrder) {
  engine::cuda::FakeDevices gpus({.gpus = 3});
  FakeNccl nccl(test::in_streams());
  nccl.lag = 2;
  {
    Setting setting;
    setting.iterations = 3;
    const std::vector<engine::Device*> devices{&gpus[0], &gpus[1], &gpus[2]};
    const NcclRanks theirs(devices, test::library(nccl), std::chrono::seconds(20));
    DeviceRanks ranks(setting,
                      {.devices = devices, .nccl = &theirs, .copied = 8192, .batch_seconds = 1e-6});
    for (const std::size_t count : {1000, 5000}) {
      const Measured found = ranks.measure("direct", count);
      EXPECT_EQ(found.wrong, 0u);
      EXPECT_EQ(found.rival_wrong, 0u);
      EXPECT_EQ(found.rival->rounds, 3);
      EXPECT_GT(found.rival->median, 0);
    }
    EXPECT_EQ(nccl.made(), 3) << "one communicator for all sizes";
  }
  EXPECT_EQ(nccl.communicators(), 0);
  EXPECT_EQ(nccl.aborted(), 0);
  EXPECT_EQ(nccl.misuses(), std::vector<std::string>());
}

}  // namespace bench_nccl_test
}  // namespace lockstep::tools::bench
