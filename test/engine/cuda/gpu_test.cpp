// SPDX-License-Identifier: MIT
#include "engine/cuda/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/gpu_list.h"
#include "engine/cuda/libraries.h"
#include "engine/ops/ops.h"
#include "engine/runtime/devices.h"
#include "test/engine/cuda/fake_cublas_lt.h"
#include "test/engine/cuda/fake_cudnn.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace gpu_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Provides GPUs with empty kernels and records the arguments of their creation.
class GpuTest : public ::testing::Test {
 protected:
  GpuKernels kernels() {
    return {.image =
                [this](DType dtype) {
                  images_.emplace_back(name(dtype));
                  return FakeGpu::image(dtype);
                },
            .ops = [this](const GpuParts& parts, DType dtype,
                          OpsOptions options) -> std::unique_ptr<Ops> {
              modules_.push_back(&parts.kernels);
              memories_.push_back(&parts.memory);
              asked_.push_back(fmt::format("cuda:{} {} {}", parts.context.index(), name(dtype),
                                           options.threads));
              return nullptr;
            },
            .libraries =
                [this] {
                  return version_text({products_.functions(), convolutions_.functions()}, rounds_);
                }};
  }

  FakeGpu fake_{{.gpus = 2, .memory = std::size_t(3) << 30, .capability = 90}};
  Driver driver_ = fake_.driver();
  FakeCublasLt products_;
  FakeCudnn convolutions_{driver_};
  bool rounds_ = false;
  std::vector<const KernelModule*> modules_;
  std::vector<const Memory*> memories_;
  std::vector<std::string> asked_, images_;
};

TEST_F(GpuTest, SaysWhatItIs) {
  const Gpu gpu(driver_, 1, kernels());
  EXPECT_EQ(to_string(gpu.id()), "cuda:1");
  EXPECT_EQ(gpu.description(),
            "Fake GPU at 0000:01:00.0, compute capability 9.0, 3 GiB, driver CUDA " +
                version_text(CUDA_VERSION));
  EXPECT_THAT(gpu.instructions(),
              AllOf(StartsWith("Fake GPU, compute capability 9.0, cuBLASLt 13.1.2, cuDNN 9.0.0 "
                               "(own kernels "),
                    Not(HasSubstr("TF32"))));
  rounds_ = true;
  EXPECT_THAT(gpu.instructions(), HasSubstr("cuDNN 9.0.0, TF32 (own"));
}

TEST_F(GpuTest, HasTheChoicesOfItsKernels) {
  GpuKernels with = kernels();
  EXPECT_EQ(Gpu(driver_, 0, with).choices(), "");
  PlanCache cache("", "Fake GPU", Log());
  with.plans = [&](const GpuFacts& gpu) -> PlanCache& {
    EXPECT_EQ(gpu.name, "Fake GPU");
    return cache;
  };
  Gpu gpu(driver_, 0, with);
  Device& device = gpu;
  device.adopt_choices("problem = choice\n");
  EXPECT_EQ(device.choices(), "problem = choice\n");
  EXPECT_EQ(cache.text(), "problem = choice\n");
  EXPECT_THAT(gpu.instructions(), Not(HasSubstr("choice")));
}

TEST_F(GpuTest, HasThreeElementTypes) {
  const Gpu gpu(driver_, 0, kernels());
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(gpu.supports(dtype),
              dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16)
        << name(dtype);
  }
  EXPECT_TRUE(gpu.supports(gpu.default_dtype()));
}

TEST_F(GpuTest, IsLeftAloneUntilItIsUsed) {
  Gpu gpu(driver_, 0, kernels());
  gpu.description();
  gpu.instructions();
  EXPECT_EQ(fake_.left(), "");
  gpu.allocate(100);
  EXPECT_THAT(fake_.left(), HasSubstr("1 held context"));
}

TEST_F(GpuTest, ItsEndGivesAllBack) {
  {
    Gpu gpu(driver_, 0, kernels());
    gpu.allocate(100);
    gpu.ops(DType::kFloat32, {});
    gpu.stream()->synchronize();
    EXPECT_NE(fake_.left(), "");
  }
  EXPECT_EQ(fake_.left(), "");
}

TEST_F(GpuTest, ItsMemoryIsZeroedAndTheGpusOwn) {
  Gpu gpu(driver_, 1, kernels());
  const std::size_t free = fake_.free_memory(1);
  const Buffer buffer = gpu.allocate(1000);
  EXPECT_LT(fake_.free_memory(1), free);
  EXPECT_EQ(fake_.free_memory(0), free);
  EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + 1000,
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(GpuTest, NoMoreThanItsFractionIsTaken) {
  Gpu gpu(driver_, 0, kernels(), 0.5);
  EXPECT_EQ(gpu.memory().limit(), std::size_t(3) << 29);
  EXPECT_THROW(gpu.allocate(std::size_t(2) << 30), Error);
}

TEST_F(GpuTest, AllReplicasShareMemoryAndTheKernelsOfTheirType) {
  Gpu gpu(driver_, 0, kernels());
  gpu.ops(DType::kFloat32, {.threads = 3});
  gpu.ops(DType::kBFloat16, {});
  EXPECT_THAT(images_, ElementsAre("float32", "bfloat16"));
  gpu.ops(DType::kFloat32, {});
  EXPECT_THAT(asked_, ElementsAre("cuda:0 float32 3", "cuda:0 bfloat16 1", "cuda:0 float32 1"));
  EXPECT_EQ(modules_[0], modules_[2]);
  EXPECT_NE(modules_[0], modules_[1]);
  EXPECT_THAT(memories_, ElementsAre(&gpu.memory(), &gpu.memory(), &gpu.memory()));
}

TEST_F(GpuTest, AnElementTypeWithoutKernelsIsNamed) {
  Gpu gpu(driver_, 0, kernels());
  try {
    gpu.ops(DType::kFloat64, {});
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_STREQ(error.what(),
                 "cuda:0 has no kernels for float64; it has them for float32, bfloat16 and "
                 "float16");
  }
}

TEST_F(GpuTest, TheListHasAllGpus) {
  const auto list = gpu_list(driver_, kernels(), 0.5);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(to_string(list[0]->id()), "cuda:0");
  EXPECT_EQ(to_string(list[1]->id()), "cuda:1");
  EXPECT_EQ(fake_.left(), "");
}

TEST_F(GpuTest, FindingsNameTheDriverAndEachGpu) {
  const std::string version = version_text(CUDA_VERSION);
  EXPECT_THAT(gpu_findings(driver_),
              ElementsAre("driver for CUDA " + version + "; lockstep was built with " + version,
                          "cuda:0: Fake GPU, compute capability 9.0, 3 GiB, 4 multiprocessors, at "
                          "0000:00:00.0",
                          "cuda:1: Fake GPU, compute capability 9.0, 3 GiB, 4 multiprocessors, at "
                          "0000:01:00.0"));
}

TEST_F(GpuTest, OfThoseThatWereUsedTheMostMemoryIsToldOnce) {
  const auto list = gpu_list(driver_, kernels(), 0.9, std::size_t(1) << 30);
  const auto processor = cpu_device();
  EXPECT_FALSE(cuda_memory(*list[0])) << "nothing was asked of it";
  EXPECT_FALSE(cuda_memory(*processor));
  list[1]->allocate(std::size_t(100) << 20);
  list[1]->allocate(std::size_t(24) << 20);
  const Buffer stays = list[1]->allocate(std::size_t(50) << 20);
  const auto used = cuda_memory(*list[1]);
  ASSERT_TRUE(used);
  EXPECT_EQ(used->most_used >> 20, 174U);
  EXPECT_EQ(used->limit >> 20, 1024U);
  Device* const all[] = {processor.get(), list[0].get(), list[1].get(), list[1].get()};
  EXPECT_THAT(
      describe_memory(all),
      ElementsAre(
          "cuda:1: at most 174.0 MiB of its memory were used by buffers, of 1024.0 MiB that "
          "might have been"));
}

// With CUDA_VISIBLE_DEVICES=3,2, an index counts the visible GPUs in that order.
TEST(GpuOrder, IndicesAreOfVisibleGpusAndTheDescriptionNamesTheirPlace) {
  const FakeGpu fake({.gpus = 2, .visible = {3, 2}});
  const auto list = gpu_list(fake.driver(), {}, 0.5);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_THAT(list[0]->description(), HasSubstr("at 0000:03:00.0"));
  EXPECT_THAT(list[1]->description(), HasSubstr("at 0000:02:00.0"));
}

TEST(GpuTooOld, IsLeftOutOfTheListAndNamedInTheFindings) {
  const FakeGpu fake({.capability = 75});
  const Driver driver = fake.driver();
  EXPECT_TRUE(gpu_list(driver, {}, 0.5).empty());
  const std::vector<std::string> findings = gpu_findings(driver);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[1],
            "cuda:0 (Fake GPU) has compute capability 7.5; lockstep needs 8.0 or newer");
}

}  // namespace gpu_test
}  // namespace lockstep::engine::cuda
