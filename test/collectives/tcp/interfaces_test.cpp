// SPDX-License-Identifier: MIT
// Lines for users about network interfaces and cards, read from the kernel's files.
#include "collectives/tcp/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace lockstep::collectives::tcp {
namespace interfaces_test {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class KernelFiles : public testing::Test {
 protected:
  KernelFiles() { fs::remove_all(top_); }
  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((top_ / file).parent_path());
    std::ofstream(top_ / file) << text << "\n";
  }
  const fs::path top_ = fs::path(testing::TempDir()) / "kernel_files";
};

TEST_F(KernelFiles, OfACardSayItsSpeedAndPlace) {
  write("eth0/operstate", "up");
  write("eth0/speed", "25000");
  write("eth0/device/numa_node", "1");
  Interface found = interface_in(top_ / "eth0");
  EXPECT_EQ(found, (Interface{.name = "eth0", .up = true, .speed = 25e9, .numa_node = 1}));
  found.addresses = {"10.0.0.1", "fd00::1"};
  EXPECT_EQ(describe(found), "eth0: up, 25 Gbit/s, NUMA node 1, 10.0.0.1, fd00::1");
}

TEST_F(KernelFiles, OfAVirtualOneSayNeither) {
  write("tap1/operstate", "unknown");
  write("tap1/carrier", "1");
  write("tap1/speed", "-1");
  write("tap1/device/numa_node", "-1");
  EXPECT_EQ(describe(interface_in(top_ / "tap1")), "tap1: up");
  EXPECT_EQ(describe(interface_in(top_ / "gone")), "gone: down");
}

TEST_F(KernelFiles, OfFabricsNameEachPort) {
  write("mlx5_1/ports/1/rate", "100 Gb/sec (2X HDR)");
  write("mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
  write("mlx5_0/ports/2/rate", "10 Gb/sec (1X QDR)");
  EXPECT_THAT(fabric_ports(top_), ElementsAre("mlx5_0, port 1: 200 Gb/sec (4X HDR)",
                                              "mlx5_0, port 2: 10 Gb/sec (1X QDR)",
                                              "mlx5_1, port 1: 100 Gb/sec (2X HDR)"));
  EXPECT_THAT(fabric_ports(top_ / "none"), IsEmpty());
}

TEST(Interfaces, AreInOrderAndLoopbackIsNone) {
  const std::vector<Interface> found = interfaces();
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NE(found[i].name, "lo");
    if (i > 0) {
      EXPECT_LT(found[i - 1].name, found[i].name);
    }
  }
}

}  // namespace interfaces_test
}  // namespace lockstep::collectives::tcp
