// SPDX-License-Identifier: MIT
#include "collectives/topology/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "collectives/topology/cgroup.h"
#include "collectives/topology/processor_map.h"

namespace lockstep::collectives {
namespace machine_test {

namespace fs = std::filesystem;

// Holds a tree of control groups in a temporary folder.
class Cgroup : public testing::Test {
 protected:
  Cgroup() : root_(fs::temp_directory_path() / ("lockstep_cgroup_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~Cgroup() override { fs::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  CgroupLimits limits() const { return cgroup_limits(root_ / "membership", root_ / "mount"); }

 private:
  fs::path root_;
};

TEST_F(Cgroup, WithoutFilesThereIsNoLimit) {
  const CgroupLimits none = limits();
  EXPECT_EQ(none.cores, 0);
  EXPECT_EQ(none.memory, CgroupLimits::kNone);
  EXPECT_EQ(none.available, CgroupLimits::kNone);
}

TEST_F(Cgroup, VersionTwoTheTightestOfTheGroupAndThoseAboveCounts) {
  file("membership", "0::/batch/job\n");
  file("mount/cpu.max", "max 100000\n");
  file("mount/batch/cpu.max", "150000 100000\n");
  file("mount/batch/memory.max", "4000000\n");
  file("mount/batch/memory.current", "3900000\n");
  file("mount/batch/memory.stat", "anon 3000000\ninactive_file 400000\n");
  file("mount/batch/job/cpu.max", "400000 100000\n");
  file("mount/batch/job/memory.max", "1000000\n");
  file("mount/batch/job/memory.current", "200000\n");
  const CgroupLimits found = limits();
  EXPECT_DOUBLE_EQ(found.cores, 1.5);
  EXPECT_EQ(found.memory, 1000000u);
  EXPECT_EQ(found.available, 500000u);  // upper group: 4000000 - (3900000 - 400000)
}

TEST_F(Cgroup, VersionTwoMaxIsNoLimit) {
  file("membership", "0::/\n");
  file("mount/cpu.max", "max 100000\n");
  file("mount/memory.max", "max\n");
  file("mount/memory.current", "123\n");
  EXPECT_EQ(limits().cores, 0);
  EXPECT_EQ(limits().memory, CgroupLimits::kNone);
}

TEST_F(Cgroup, VersionOneByController) {
  file("membership",
       "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n");
  file("mount/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  file("mount/memory/docker/abc/memory.limit_in_bytes", "5000\n");
  file("mount/memory/docker/abc/memory.usage_in_bytes", "4500\n");
  file("mount/memory/docker/abc/memory.stat", "cache 10\ntotal_inactive_file 1000\n");
  file("mount/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  file("mount/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  file("mount/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "50000\n");
  file("mount/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  const CgroupLimits found = limits();
  EXPECT_DOUBLE_EQ(found.cores, 0.5);
  EXPECT_EQ(found.memory, 5000u);
  EXPECT_EQ(found.available, 1500u);
}

TEST_F(Cgroup, APathOfTheHostThatIsUnknownHereLeavesTheMount) {
  file("membership", "0::/../../other/container\n");
  file("mount/memory.max", "7000\n");
  file("mount/memory.current", "9000\n");  // over its limit: nothing is left
  EXPECT_EQ(limits().memory, 7000u);
  EXPECT_EQ(limits().available, 0u);
}

TEST_F(Cgroup, NonsenseLimitsNothing) {
  file("membership", "nonsense\n0::\n::\n:::::\n0:::x\n");
  file("mount/memory.max", "many\n");
  file("mount/cpu.max", "0 0\n");
  EXPECT_EQ(limits().memory, CgroupLimits::kNone);
  EXPECT_EQ(limits().cores, 0);
}

TEST(Machine, SaysWhatTheSystemSays) {
  const Machine here = machine();
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  EXPECT_EQ(here.hostname, name);
  EXPECT_GE(here.cores, 1);
  EXPECT_LE(here.cores, int(sysconf(_SC_NPROCESSORS_CONF)));
  EXPECT_GT(here.memory, std::size_t(64) << 20);
  EXPECT_LE(here.memory, std::size_t(sysconf(_SC_PHYS_PAGES)) * std::size_t(sysconf(_SC_PAGESIZE)));
  EXPECT_GT(available_memory(), 0u);
}

TEST(Machine, CountsOnlyProcessorsThatMayRunIt) {
  std::jthread([] {  // affinity belongs to this thread alone
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = CPU_SETSIZE - 1; i >= 0; --i) {
      if (CPU_ISSET(i, &all)) {
        CPU_SET(i, &one);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(machine().cores, 1);
    EXPECT_EQ(processor_map().nodes.size(), 1u);
  });
}

TEST(Machine, MemoryThatAResourceLimitForbidsIsNotAvailable) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const std::size_t unlimited = available_memory();
  EXPECT_LT(available_memory(4), unlimited / 3) << "processes share what is free";
  rlimit tight = before;
  std::size_t pages = 0;  // mapped address space
  std::ifstream("/proc/self/statm") >> pages;
  const std::size_t room = std::size_t(64) << 20;
  tight.rlim_cur = pages * std::size_t(sysconf(_SC_PAGESIZE)) + room;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const std::size_t limited = available_memory(), shared = available_memory(4);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LE(limited, std::min(room, unlimited));
  EXPECT_GE(limited, std::min(room / 2, unlimited / 2));
  // A sanitizer may take a page between the two calls.
  EXPECT_GE(shared, std::min(limited / 2, unlimited / 8)) << "the limit is of this process alone";
}

TEST(Machine, TheMemoryOfThisProcessIsWhatItTouched) {
  const std::size_t before = process_memory();
  EXPECT_GT(before, std::size_t(1) << 20);
  const std::vector<char> block(std::size_t(64) << 20, 1);
  const std::size_t growth = process_memory() - before;
  EXPECT_GE(growth, block.size() * 9 / 10);
  EXPECT_LE(growth, block.size() * 8);  // the thread sanitizer adds four times as much
}

}  // namespace machine_test
}  // namespace lockstep::collectives
