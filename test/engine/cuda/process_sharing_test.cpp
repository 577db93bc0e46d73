// SPDX-License-Identifier: MIT
// Tests memory and events that processes share on their GPUs. A process here is a thread, or only a
// context: the fake driver tells them apart, and each has its own addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/stream.h"
#include "engine/device/process_sharing.h"
#include "engine/ops/ops.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/engine/cuda/fake_process.h"
#include "test/engine/cuda/reduce_operands.h"

namespace lockstep::engine::cuda {
namespace process_sharing_test {

using ::testing::HasSubstr;

constexpr std::size_t kCount = ProcessSharing::kShareUnit / sizeof(float);
constexpr std::size_t kBytes = ProcessSharing::kShareUnit;

// Represents one process with one GPU: its numbers, and room for as many.
struct Process {
  std::vector<std::unique_ptr<Device>> gpus;
  Device& gpu;
  ProcessSharing& sharing;
  std::unique_ptr<Ops> ops;
  Buffer numbers, room;

  Process(const FakeDevices& all, int number, std::size_t which = 0)
      : gpus(all.of_process(number)),
        gpu(*gpus[which]),
        sharing(dynamic_cast<ProcessSharing&>(gpu)),
        ops(gpu.ops(DType::kFloat32, {})),
        numbers(ops->allocate(kBytes, "")),
        room(ops->allocate(kBytes, "")) {
    std::vector<float> drawn(kCount);
    for (std::size_t i = 0; i < kCount; ++i) drawn[i] = uneven<float>(std::size_t(number), i);
    ops->write(drawn.data(), numbers.data(), kBytes);
    ops->synchronize();
  }
  std::vector<float> read(const Buffer& of) {
    std::vector<float> found(kCount);
    ops->read(of.data(), found.data(), kBytes);
    return found;
  }
  void queue_copy(const std::byte* from, std::byte* to) const {
    ops->reduce({.from = {&from, 1}, .to = {&to, 1}, .count = kCount});
  }
  void copy(const std::byte* from, std::byte* to) const {
    queue_copy(from, to);
    ops->record_event(0);
    ops->wait_for_event(0);
  }
};

template <class Call>
std::string failure(Call call, Code code = Code::kDevice) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "none";
}

TEST(SharedWithProcesses, MemoryThatIsOpenIsReadAndWrittenByKernelsAtAnotherAddress) {
  for (const int gpus : {1, 2}) {
    FakeDevices all({.gpus = gpus});
    Process one(all, 1), two(all, 2, std::size_t(gpus) - 1);
    {
      const Buffer numbers =
          two.sharing.open_memory(one.sharing.export_memory(one.numbers.data()), kBytes);
      const Buffer room =
          two.sharing.open_memory(one.sharing.export_memory(one.room.data()), kBytes);
      EXPECT_NE(numbers.data(), one.numbers.data());
      two.copy(numbers.data(), two.room.data());
      two.copy(two.numbers.data(), room.data());
    }
    EXPECT_TRUE(same(two.read(two.room), one.read(one.numbers)));
    EXPECT_TRUE(same(one.read(one.room), two.read(two.numbers)));
  }
}

TEST(SharedWithProcesses, MemoryThatIsNotOpenIsNotReached) {
  FakeDevices all({.gpus = 1});
  Process one(all, 1), two(all, 2);
  EXPECT_THAT(failure([&] { two.copy(one.numbers.data(), two.room.data()); }),
              HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST(SharedWithProcesses, WhatADriverRefusesIsAnErrorWithItsWords) {
  FakeDevices all({.gpus = 1});
  Process one(all, 1), two(all, 2);
  const std::string memory = one.sharing.export_memory(one.numbers.data());
  EXPECT_THAT(failure([&] { one.sharing.open_memory(memory, kBytes); }),
              HasSubstr("cuda:0: cuIpcOpenMemHandle failed: invalid device context"));
  EXPECT_THAT(failure([&] { one.sharing.export_memory(one.numbers.data() + 512); }),
              HasSubstr("cuIpcGetMemHandle failed"));
  const std::unique_ptr<ProcessEvent> event = one.sharing.make_event();
  EXPECT_THAT(failure([&] { one.sharing.open_event(event->exported()); }),
              HasSubstr("cuIpcOpenEventHandle failed: invalid device context"));
  EXPECT_THAT(failure([&] { two.sharing.open_memory("beef", kBytes); }, Code::kInvalid),
              HasSubstr("4 characters are no handle of 64 bytes"));
  EXPECT_THAT(failure([&] { two.sharing.open_event(std::string(128, 'g')); }, Code::kInvalid),
              HasSubstr("is no handle of another process"));
}

TEST(SharedWithProcesses, WhereTheDriverHasNoWayNothingIsShared) {
  FakeDevices without({.gpus = 1, .sharing = false});
  Process alone(without, 1);
  EXPECT_THAT(failure([&] { alone.sharing.export_memory(alone.numbers.data()); }),
              HasSubstr("cuIpcGetMemHandle failed: operation not supported"));
}

TEST(SharedWithProcesses, GpusThatDoNotReachEachOtherOpenNothing) {
  FakeDevices all({.gpus = 2, .apart = {{1, 0}}});
  Process one(all, 1, 0), two(all, 2, 1);
  const std::string of_one = one.sharing.export_memory(one.numbers.data());
  const std::string of_two = two.sharing.export_memory(two.numbers.data());
  EXPECT_THAT(failure([&] { two.sharing.open_memory(of_one, kBytes); }),
              HasSubstr("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"));
  EXPECT_EQ(one.sharing.open_memory(of_two, kBytes).bytes(), kBytes);
  EXPECT_NE(one.sharing.place(), two.sharing.place());
}

// The event holds in every order of the streams.
TEST(SharedWithProcesses, AnEventHoldsBackReductionsOfAnotherProcess) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    FakeDevices all({.gpus = 1, .seed = seed});
    Process one(all, 1), two(all, 2);
    const Buffer room = two.sharing.open_memory(one.sharing.export_memory(one.room.data()), kBytes);
    const std::unique_ptr<ProcessEvent> made = one.sharing.make_event();
    const std::unique_ptr<ProcessEvent> seen = two.sharing.open_event(made->exported());
    for (int i = 0; i < 5; ++i)
      one.queue_copy(i < 4 ? one.room.data() : one.numbers.data(), one.room.data());
    made->set(*one.ops);
    seen->hold_back(*two.ops);
    two.copy(room.data(), two.room.data());
    EXPECT_TRUE(same(two.read(two.room), one.read(one.numbers))) << seed;
  }
}

TEST(SharedWithProcesses, PagesOfTheHostThatArePinnedAreOfKernelsOnceForEachProcess) {
  FakeDevices all({.gpus = 1});
  void* const mapped =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  void* const again = ::mremap(mapped, 0, kBytes, MREMAP_MAYMOVE);
  ASSERT_TRUE(mapped != MAP_FAILED && again != MAP_FAILED);
  auto* const here = static_cast<std::byte*>(mapped);
  auto* const there = static_cast<std::byte*>(again);
  {
    Process one(all, 1), two(all, 2);
    const Buffer mine = one.sharing.pin(here, kBytes), theirs = two.sharing.pin(there, kBytes);
    EXPECT_THAT(failure([&] { one.sharing.pin(here, kBytes); }),
                HasSubstr("cuMemHostRegister failed"));
    one.copy(one.numbers.data(), here);
    two.copy(there, two.room.data());
    EXPECT_TRUE(same(two.read(two.room), one.read(one.numbers)));
  }
  ::munmap(mapped, kBytes);
  ::munmap(again, kBytes);
  EXPECT_EQ(all.left(), "") << "of two processes that have ended";
}

// Other processes may still have it open, so it lives as long as the GPU.
TEST(SharedWithProcesses, AnEventThatIsGivenBackStaysAndIsGivenAgain) {
  FakeDevices all({.gpus = 1});
  Process one(all, 1), two(all, 2);
  std::unique_ptr<ProcessEvent> made = one.sharing.make_event();
  const std::string first = made->exported();
  const std::unique_ptr<ProcessEvent> seen = two.sharing.open_event(first);
  made.reset();
  seen->hold_back(*two.ops);
  made = one.sharing.make_event();
  EXPECT_EQ(made->exported(), first);
  EXPECT_NE(one.sharing.make_event()->exported(), first);
}

// Queued work may wait for a process that has died.
TEST(SharedWithProcesses, AGpuThatIsGivenUpIsNotWaitedFor) {
  FakeDevices all({.gpus = 1});
  const Process one(all, 1);
  int looks = 0;
  one.sharing.on_waiting([&](std::chrono::nanoseconds) {
    if (++looks == 3) one.sharing.give_up();
  });
  all.stick();
  one.queue_copy(one.numbers.data(), one.room.data());
  one.ops->record_event(0);
  EXPECT_THAT(failure([&] { one.ops->wait_for_event(0); }, Code::kTimeout),
              HasSubstr("is not waited for"));
  EXPECT_EQ(looks, 3);
  one.sharing.on_waiting({});
}

TEST(SharedWithProcesses, WorkThatFailsMayBeExplainedByWhoLooksAfterWaits) {
  FakeDevices all({.gpus = 1});
  Process one(all, 1), two(all, 2);
  two.sharing.on_waiting([&](std::chrono::nanoseconds waited) {
    if (waited == std::chrono::nanoseconds::max()) fail(Code::kPeerLost, "rank 0 died");
  });
  EXPECT_EQ(failure([&] { two.copy(one.numbers.data(), two.room.data()); }, Code::kPeerLost),
            "rank 0 died");
  two.sharing.on_waiting({});
}

using SharedWithProcessesDeathTest = ::testing::Test;

TEST(SharedWithProcessesDeathTest, MemoryThatAnotherProcessHasOpenIsNotGivenBack) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        FakeDevices all({.gpus = 1});
        Process two(all, 2);
        Buffer open;
        Process one(all, 1);
        open = two.sharing.open_memory(one.sharing.export_memory(one.numbers.data()), kBytes);
      },
      "another process has open");
}

}  // namespace process_sharing_test
}  // namespace lockstep::engine::cuda
