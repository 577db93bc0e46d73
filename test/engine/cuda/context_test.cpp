// SPDX-License-Identifier: MIT
#include "engine/cuda/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "engine/base/error.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace context_test {

using ::testing::HasSubstr;

// Returns the message of the error that `call` throws, whose code must be `code`.
template <class Call>
std::string refusal(Code code, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing thrown";
}

TEST(Driver, AnOlderMajorVersionIsRefusedInOneLine) {
  const FakeGpu fake({.driver_version = 12040});
  const std::string line = refusal(Code::kUnavailable, [&] { start(fake.new_driver()); });
  EXPECT_THAT(line, HasSubstr("the driver supports CUDA 12.4; lockstep was built with " +
                              version_text(CUDA_VERSION) + ": install a driver for CUDA"));
}

TEST(Driver, AnOtherMinorVersionIsTaken) {
  const FakeGpu fake({.driver_version = CUDA_VERSION / 1000 * 1000 + 990});
  start(fake.new_driver());
  EXPECT_EQ(device_count(fake.driver()), 1);
}

TEST(Driver, NoGpuIsSaidInOneLine) {
  const FakeGpu fake({.gpus = 0});
  EXPECT_EQ(refusal(Code::kUnavailable, [&] { start(fake.new_driver()); }),
            "the driver could not be started: no CUDA-capable device is detected "
            "(CUDA_ERROR_NO_DEVICE)");
}

TEST(Driver, AnErrorWithoutWordsHasItsNumber) {
  const FakeGpu fake;
  EXPECT_EQ(words(fake.driver(), CUDA_ERROR_UNKNOWN), "unknown (999)");
}

TEST(Context, KnowsTheGpu) {
  const FakeGpu fake({.gpus = 2, .memory = 1 << 20, .capability = 86});
  const Driver driver = fake.driver();
  const Context context(driver, 1);
  EXPECT_EQ(context.index(), 1);
  EXPECT_EQ(context.facts().name, "Fake GPU");
  EXPECT_EQ(context.facts().bus_id, "0000:01:00.0");
  EXPECT_EQ(context.facts().capability, 86);
  EXPECT_EQ(context.facts().memory, std::size_t(1) << 20);
  EXPECT_EQ(context.facts().multiprocessors, 4);
  EXPECT_EQ(context.facts().cache, std::size_t(1) << 20);
  EXPECT_EQ(context.free_memory(), std::size_t(1) << 20);
}

TEST(Context, AGpuTooOldIsRefusedAndNothingHeld) {
  const FakeGpu fake({.capability = 75});
  const Driver driver = fake.driver();
  EXPECT_EQ(refusal(Code::kDevice, [&] { Context(driver, 0); }),
            "cuda:0 (Fake GPU) has compute capability 7.5; lockstep needs 8.0 or newer");
  EXPECT_EQ(fake.left(), "");
}

TEST(Context, AGpuThatIsNotThereIsNamed) {
  const FakeGpu fake;
  const Driver driver = fake.driver();
  EXPECT_THAT(refusal(Code::kDevice, [&] { Context(driver, 3); }),
              HasSubstr("cuda:3: cuDeviceGet failed"));
}

TEST(Context, EachThreadHasItsOwnCurrentOne) {
  const FakeGpu fake({.gpus = 2});
  const Driver driver = fake.driver();
  const Context first(driver, 0);
  const Context second(driver, 1);
  const auto current = [&] {
    CUcontext context = nullptr;
    EXPECT_EQ(driver.ctx_get_current(&context), CUDA_SUCCESS);
    return context;
  };
  first.use();
  const CUcontext one = current();
  ASSERT_NE(one, nullptr);
  std::thread([&] {
    EXPECT_EQ(current(), nullptr);
    second.use();
    EXPECT_NE(current(), one);
  }).join();
  EXPECT_EQ(current(), one);
  second.use();
  EXPECT_NE(current(), one);
}

TEST(Context, WhatLibrariesHaveWorkedInStays) {
  const FakeGpu fake;
  const Driver driver = fake.driver();
  { Context(driver, 0).keep(); }
  EXPECT_EQ(fake.left(), "1 held context");
}

TEST(Context, ItsEndGivesTheGpuBack) {
  const FakeGpu fake;
  const Driver driver = fake.driver();
  {
    const Context context(driver, 0);
    EXPECT_EQ(fake.left(), "1 held context");
  }
  EXPECT_EQ(fake.left(), "");
}

TEST(Context, AnErrorHasTheCallAndTheDriversWords) {
  const FakeGpu fake;
  const Driver driver = fake.driver();
  const Context context(driver, 0);
  context.check(CUDA_SUCCESS, "cuMemAlloc");
  EXPECT_EQ(refusal(Code::kDevice, [&] { context.check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc"); }),
            "cuda:0: cuMemAlloc failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
}

}  // namespace context_test
}  // namespace lockstep::engine::cuda
