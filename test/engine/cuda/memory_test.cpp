// SPDX-License-Identifier: MIT
#include "engine/cuda/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/cuda/stream.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace memory_test {

using ::testing::HasSubstr;

constexpr std::size_t kMebibyte = std::size_t(1) << 20;

// Provides a GPU of 64 MiB.
class MemoryTest : public ::testing::Test {
 protected:
  FakeGpu fake_{{.memory = 64 * kMebibyte}};
  Driver driver_ = fake_.driver();
  Context context_{driver_, 0};
};

bool is_zero(const Buffer& buffer) {
  return std::all_of(buffer.data(), buffer.data() + buffer.bytes(),
                     [](std::byte b) { return b == std::byte{0}; });
}

TEST_F(MemoryTest, BuffersAreZeroedAndAligned) {
  Memory memory(context_);
  for (const std::size_t bytes : {1, 511, 512, 513, 70000, 3000000}) {
    const Buffer buffer = memory.allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 512, 0U);
    EXPECT_TRUE(is_zero(buffer)) << bytes;
    EXPECT_TRUE(is_zero(memory.pinned(bytes))) << bytes;
  }
  EXPECT_EQ(memory.allocate(0).data(), nullptr);
}

TEST_F(MemoryTest, BlocksAreRounded) {
  Memory memory(context_);
  const Buffer small = memory.allocate(513);
  EXPECT_EQ(memory.taken(), 1024U);
  const Buffer large = memory.allocate(kMebibyte);
  EXPECT_EQ(memory.taken(), 1024U + 2 * kMebibyte);
}

TEST_F(MemoryTest, WhatIsGivenBackIsGivenAgain) {
  Memory memory(context_);
  Buffer buffer = memory.allocate(5000);
  std::byte* const place = buffer.data();
  std::memset(place, 7, 5000);
  buffer = Buffer();
  EXPECT_EQ(memory.taken(), 0U);
  EXPECT_EQ(memory.held(), 5120U);
  const std::size_t free = fake_.free_memory();
  buffer = memory.allocate(4900);
  EXPECT_EQ(buffer.data(), place);
  EXPECT_TRUE(is_zero(buffer));
  EXPECT_EQ(fake_.free_memory(), free);
  EXPECT_EQ(memory.held(), 0U);
}

TEST_F(MemoryTest, ABlockMuchTooLargeIsNotUsed) {
  Memory memory(context_);
  memory.allocate(8 * kMebibyte);
  const Buffer buffer = memory.allocate(kMebibyte);
  EXPECT_EQ(memory.held(), 8 * kMebibyte);
}

// The work was queued while the memory belonged to another buffer, and runs late.
TEST_F(MemoryTest, WorkQueuedBeforeDoesNotShowInABufferThatUsesTheMemoryAgain) {
  Memory memory(context_);
  CudaStream stream(context_);
  Buffer buffer = memory.allocate(4096);
  std::byte* const place = buffer.data();
  stream.fill(place, 0x11, 4096);
  buffer = Buffer();
  buffer = memory.allocate(4096);
  ASSERT_EQ(buffer.data(), place);
  stream.synchronize();
  EXPECT_TRUE(is_zero(buffer));
}

TEST_F(MemoryTest, TheSameOfPinnedMemory) {
  Memory memory(context_);
  CudaStream stream(context_);
  Buffer buffer = memory.pinned(4096);
  std::byte* const place = buffer.data();
  stream.fill(place, 0x11, 4096);
  buffer = Buffer();
  buffer = memory.pinned(4096);
  ASSERT_EQ(buffer.data(), place);
  stream.synchronize();
  EXPECT_TRUE(is_zero(buffer));
}

TEST_F(MemoryTest, NoMoreThanTheFractionIsTakenAndTheErrorSaysHowMuch) {
  Memory memory(context_, 0.5);
  EXPECT_EQ(memory.limit(), 32 * kMebibyte);
  const Buffer first = memory.allocate(20 * kMebibyte);
  try {
    memory.allocate(14 * kMebibyte, "activations");
    FAIL() << "given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kMemory);
    EXPECT_STREQ(error.what(),
                 "cuda:0: no memory for activations: 14.0 MiB asked for, 20.0 MiB taken, at most "
                 "32.0 MiB to be taken, 44.0 MiB free");
  }
  EXPECT_EQ(memory.taken(), 20 * kMebibyte);
  EXPECT_EQ(memory.allocate(12 * kMebibyte).bytes(), 12 * kMebibyte);
}

TEST_F(MemoryTest, NoMoreBytesThanAreNamedAreTakenAndTheErrorNamesTheTensor) {
  Memory memory(context_, 0.9, 24 * kMebibyte);
  EXPECT_EQ(memory.limit(), 24 * kMebibyte);
  const Buffer first = memory.allocate(20 * kMebibyte);
  try {
    memory.allocate(6 * kMebibyte, "the output of conv1, 128x28x28x32");
    FAIL() << "given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kMemory);
    EXPECT_STREQ(error.what(),
                 "cuda:0: no memory for the output of conv1, 128x28x28x32: 6.0 MiB asked for, 20.0 "
                 "MiB taken, at most 24.0 MiB to be taken, 44.0 MiB free");
  }
  EXPECT_EQ(Memory(context_, 0.25, 24 * kMebibyte).limit(), 11 * kMebibyte)
      << "what is free allows no more";
}

TEST_F(MemoryTest, TheMostThatWasEverTakenIsKnown) {
  Memory memory(context_);
  EXPECT_EQ(memory.most_taken(), 0U);
  memory.allocate(20 * kMebibyte);
  {
    const Buffer small = memory.allocate(2 * kMebibyte);
    EXPECT_EQ(memory.taken(), 2 * kMebibyte);
    EXPECT_EQ(memory.most_taken(), 22 * kMebibyte) << "what is held is taken from others too";
  }
  memory.allocate(8 * kMebibyte);
  EXPECT_EQ(memory.most_taken(), 30 * kMebibyte);
}

TEST_F(MemoryTest, KeptBlocksMakeRoomWithinTheLimit) {
  Memory memory(context_, 0.5);
  memory.allocate(20 * kMebibyte);
  const Buffer buffer = memory.allocate(30 * kMebibyte);
  EXPECT_EQ(memory.held(), 0U);
  EXPECT_EQ(fake_.free_memory(), 34 * kMebibyte);
}

// Another process has taken memory on which this one relied.
TEST_F(MemoryTest, KeptBlocksMakeRoomWhereTheGpuHasNoMore) {
  Memory memory(context_, 1.0);
  memory.allocate(30 * kMebibyte);
  CUdeviceptr others = 0;
  ASSERT_EQ(driver_.mem_alloc(&others, 20 * kMebibyte), CUDA_SUCCESS);
  const Buffer buffer = memory.allocate(20 * kMebibyte);
  EXPECT_EQ(memory.held(), 0U);
  EXPECT_EQ(fake_.free_memory(), 24 * kMebibyte);
  EXPECT_THROW(memory.allocate(30 * kMebibyte), Error);
  ASSERT_EQ(driver_.mem_free(others), CUDA_SUCCESS);
  EXPECT_EQ(memory.allocate(30 * kMebibyte).bytes(), 30 * kMebibyte);
}

TEST_F(MemoryTest, ItsEndGivesAllBack) {
  {
    const Context context(driver_, 0);
    Memory memory(context);
    memory.allocate(100);
    memory.pinned(100);
    EXPECT_EQ(fake_.left(), "1 stream, 2 blocks, 2 held contexts");
  }
  EXPECT_EQ(fake_.left(), "1 held context");
}

TEST_F(MemoryTest, ThreadsShareIt) {
  Memory memory(context_);
  std::vector<std::thread> threads;
  for (unsigned char mine = 1; mine <= 4; ++mine) {
    threads.emplace_back([&memory, mine] {
      for (std::size_t round = 0; round < 50; ++round) {
        const Buffer buffer = memory.allocate(1000 + 100 * round);
        ASSERT_TRUE(is_zero(buffer));
        std::memset(buffer.data(), mine, buffer.bytes());
        for (std::size_t i = 0; i < buffer.bytes(); ++i) {
          ASSERT_EQ(buffer.data()[i], std::byte{mine});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.taken(), 0U);
}

using MemoryDeathTest = MemoryTest;

TEST_F(MemoryDeathTest, ABufferThatOutlivesItStopsTheProgram) {
  EXPECT_DEATH(
      {
        Buffer buffer;
        Memory memory(context_);
        buffer = memory.allocate(100);
      },
      "memory of a GPU is gone before its buffers");
}

TEST_F(MemoryDeathTest, TheFakeSeesWritesBesideABlock) {
  EXPECT_DEATH(
      {
        Memory memory(context_);
        memory.allocate(512).data()[512] = std::byte{1};
      },
      "something wrote behind a block");
  EXPECT_DEATH(
      {
        Memory memory(context_);
        memory.allocate(512).data()[-1] = std::byte{1};
      },
      "something wrote before a block");
}

}  // namespace memory_test
}  // namespace lockstep::engine::cuda
