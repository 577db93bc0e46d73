// SPDX-License-Identifier: MIT
#include "engine/cuda/kernel_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/memory.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace kernel_module_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Writes each thread's number in the grid, plus `add`, up to index `room`.
struct Number {
  static constexpr const char* kName = "number";
  std::uint32_t* to;
  std::uint32_t room;
  std::uint32_t add;
};
void number(const void* arguments) {
  Number a{};
  std::memcpy(&a, arguments, sizeof a);
  const EmulatedPlace& at = emulated_place();
  const unsigned i = (at.block_row * at.blocks + at.block) * at.threads + at.thread;
  if (i < a.room) a.to[i] = i + a.add;
}

// Halves one value; exists for a single element type.
struct Halve {
  static constexpr const char* kName = "halve";
  std::uint32_t* value;
};
void halve(const void* arguments) {
  Halve a{};
  std::memcpy(&a, arguments, sizeof a);
  if (emulated_place().thread == 0) *a.value /= 2;
}

struct Unknown {
  static constexpr const char* kName = "unknown";
};

std::span<const EmulatedKernel> kernels_of_test(DType dtype) {
  static const std::array kKernels{EmulatedKernel{Number::kName, sizeof(Number), number},
                                   EmulatedKernel{Halve::kName, sizeof(Halve), halve}};
  return std::span(kKernels).first(dtype == DType::kFloat32 ? 2 : 1);
}

FakeGpuOptions with_kernels(FakeGpuOptions options = {}) {
  options.kernels = kernels_of_test;
  return options;
}

class KernelModuleTest : public ::testing::Test {
 protected:
  explicit KernelModuleTest(FakeGpuOptions options = {})
      : fake_(with_kernels(std::move(options))) {}
  FakeGpu fake_;
  Driver driver_ = fake_.driver();
  Context context_{driver_, 0};
  Memory memory_{context_};
  KernelModule module_{context_, FakeGpu::image(DType::kFloat32)};
  CudaStream stream_{context_};
  Buffer buffer_ = memory_.allocate(4 * 1024);
  std::uint32_t* const numbers_ = reinterpret_cast<std::uint32_t*>(buffer_.data());
};

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice) << error.what();
    return error.what();
  }
  return "nothing thrown";
}

TEST_F(KernelModuleTest, AKernelRunsOnceForEachThreadOfTheGrid) {
  module_.launch(stream_, {.blocks = 3, .rows = 2, .threads = 64}, Number{numbers_, 1024, 1});
  stream_.synchronize();
  for (std::uint32_t i = 0; i < 384; ++i) ASSERT_EQ(numbers_[i], i + 1);
  EXPECT_EQ(numbers_[384], 0U);
}

TEST_F(KernelModuleTest, ArgumentsAreThoseOfTheCall) {
  Number arguments{numbers_, 1024, 7};
  module_.launch(stream_, {.threads = 32}, arguments);
  arguments.add = 1000;
  arguments.to = nullptr;
  stream_.synchronize();
  EXPECT_EQ(numbers_[0], 7U);
}

TEST_F(KernelModuleTest, KernelsOfAStreamRunInTheirOrder) {
  module_.launch(stream_, {.threads = 32}, Number{numbers_, 1024, 40});
  module_.launch(stream_, {.threads = 32}, Halve{numbers_});
  stream_.synchronize();
  EXPECT_EQ(numbers_[0], 20U);
  EXPECT_THAT(fake_.kernels_run(), ElementsAre("number", "halve"));
}

// Only kernels for compute capability 9.0 and newer wait for the previous kernel themselves.
TEST(KernelModule, KernelsStartEarlyWhereTheyWaitByThemselves) {
  for (const int capability : {80, 89, 90, 120}) {
    FakeGpu fake(with_kernels({.capability = capability}));
    const Driver driver = fake.driver();
    const Context context(driver, 0);
    Memory memory(context);
    const Buffer buffer = memory.allocate(128);
    const KernelModule module(context, FakeGpu::image(DType::kFloat32));
    CudaStream stream(context);
    module.launch(stream, {.threads = 32}, Halve{reinterpret_cast<std::uint32_t*>(buffer.data())});
    stream.synchronize();
    EXPECT_EQ(fake.early_launches(), capability >= 90 ? 1U : 0U) << capability;
  }
}

TEST_F(KernelModuleTest, NoBlocksAreNoLaunch) {
  module_.launch(stream_, {.blocks = 0}, Number{numbers_, 1024, 7});
  module_.launch(stream_, {.rows = 0}, Number{numbers_, 1024, 7});
  stream_.synchronize();
  EXPECT_THAT(fake_.kernels_run(), ElementsAre());
}

TEST_F(KernelModuleTest, AnImageThatIsNoneIsTheDriversError) {
  constexpr std::string_view kText = "no module";
  EXPECT_EQ(refusal([&] { KernelModule(context_, std::as_bytes(std::span(kText))); }),
            "cuda:0: cuModuleLoadData failed: device kernel image is invalid "
            "(CUDA_ERROR_INVALID_IMAGE)");
}

TEST(KernelModule, ADriverThatCannotTranslateTheKernelsIsNamed) {
  constexpr int kOldest = CUDA_VERSION / 1000 * 1000;  // the oldest not refused at once
  for (const CUresult answer : {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_NO_BINARY_FOR_GPU}) {
    FakeGpu fake({.driver_version = kOldest, .capability = 120, .load = answer});
    const Driver driver = fake.driver();
    const Context context(driver, 0);
    EXPECT_EQ(refusal([&] { KernelModule(context, FakeGpu::image(DType::kFloat32)); }),
              fmt::format("cuda:0: its driver, for CUDA {0}, cannot translate lockstep's kernels "
                          "for Fake GPU (compute capability 12.0): install a driver for CUDA {1} "
                          "or newer, or build lockstep with CUDA {0}",
                          version_text(kOldest), version_text(CUDA_VERSION)));
  }
}

TEST_F(KernelModuleTest, ItsEndUnloads) {
  const std::string before = fake_.left();
  {
    const KernelModule module(context_, FakeGpu::image(DType::kFloat16));
    EXPECT_NE(fake_.left(), before);
  }
  EXPECT_EQ(fake_.left(), before);
}

class RefusedLaunch : public KernelModuleTest {
 protected:
  RefusedLaunch() : KernelModuleTest({.refused_launch = 1}) {}
};

TEST_F(RefusedLaunch, IsAnErrorThatNamesTheKernelAndLeavesTheOthers) {
  module_.launch(stream_, {.threads = 32}, Number{numbers_, 1024, 40});
  EXPECT_EQ(refusal([&] { module_.launch(stream_, {.threads = 32}, Halve{numbers_}); }),
            "cuda:0: cuLaunchKernelEx of halve failed: too many resources requested for launch "
            "(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)");
  stream_.synchronize();
  EXPECT_EQ(numbers_[0], 40U);
}

class FailedLaunch : public KernelModuleTest {
 protected:
  FailedLaunch() : KernelModuleTest({.failed_launch = 0}) {}
};

TEST_F(FailedLaunch, IsAnErrorOfWhoWaitsAndOfEveryCallAfterIt) {
  module_.launch(stream_, {.threads = 32}, Number{numbers_, 1024, 40});
  EXPECT_EQ(refusal([&] { stream_.synchronize(); }),
            "cuda:0: cuStreamQuery, or work queued before, failed: an illegal memory access was "
            "encountered (CUDA_ERROR_ILLEGAL_ADDRESS)");
  EXPECT_THAT(refusal([&] { module_.launch(stream_, {}, Halve{numbers_}); }),
              StartsWith("cuda:0: "));
  EXPECT_EQ(numbers_[0], 0U);
}

using KernelModuleDeathTest = KernelModuleTest;

TEST_F(KernelModuleDeathTest, AKernelThatTheModuleLacksStopsTheProgram) {
  EXPECT_DEATH(module_.launch(stream_, {}, Unknown{}), "there is no kernel unknown in the module");
  const KernelModule other(context_, FakeGpu::image(DType::kBFloat16));
  other.launch(stream_, {}, Number{numbers_, 1024, 1});
  EXPECT_DEATH(other.launch(stream_, {}, Halve{numbers_}), "there is no kernel halve");
}

TEST_F(KernelModuleDeathTest, ABlockOfPartOfAWarpStopsTheProgram) {
  EXPECT_DEATH(module_.launch(stream_, {.threads = 48}, Halve{numbers_}), "whole warps");
  EXPECT_DEATH(module_.launch(stream_, {.threads = 2048}, Halve{numbers_}), "whole warps");
}

}  // namespace kernel_module_test
}  // namespace lockstep::engine::cuda
