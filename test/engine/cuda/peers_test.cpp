// SPDX-License-Identifier: MIT
// Tests several GPUs of one process: peer access, and reductions over all of their memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/kernels/sums.h"
#include "engine/cuda/stream.h"
#include "engine/ops/ops.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/engine/cuda/reduce_operands.h"

namespace lockstep::engine::cuda {
namespace peers_test {

using ::testing::HasSubstr;

constexpr std::size_t kCount = 5000, kBytes = kCount * sizeof(float);

// Holds a source and a target on each device.
struct Operands {
  std::vector<std::unique_ptr<Ops>> ops;
  std::vector<Buffer> sources, targets;

  explicit Operands(const std::vector<Device*>& devices) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      ops.push_back(devices[i]->ops(DType::kFloat32, {}));
      std::vector<float> numbers(kCount);
      for (std::size_t k = 0; k < kCount; ++k) numbers[k] = uneven<float>(i, k);
      sources.push_back(ops[i]->allocate(kBytes, ""));
      targets.push_back(ops[i]->allocate(kBytes, ""));
      ops[i]->write(numbers.data(), sources[i].data(), kBytes);
      ops[i]->synchronize();
    }
  }
  void reduce_by(std::size_t who) {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      from.push_back(sources[i].data());
      to.push_back(targets[i].data());
    }
    ops[who]->reduce({.from = from, .to = to, .count = kCount});
    ops[who]->record_event(0);
    ops[who]->wait_for_event(0);
  }
  std::vector<float> target(std::size_t of) {
    std::vector<float> numbers(kCount);
    ops[of]->read(targets[of].data(), numbers.data(), kBytes);
    return numbers;
  }
};

void reach_each_other(FakeDevices& gpus, std::size_t count) {
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = 0; b < count; ++b) EXPECT_TRUE(gpus[a].reach(gpus[b])) << a << " " << b;
}

// Returns the error of the reduction; later calls have the same one.
std::string failure(Operands& operands, std::size_t who) {
  try {
    operands.reduce_by(who);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice);
    return error.what();
  }
  return "none";
}

TEST(Peers, AReductionOverGpusHasTheBitsOfTheProcessors) {
  FakeDevices gpus({.gpus = 3});
  reach_each_other(gpus, 3);
  const auto processor = cpu_device();
  Operands there({processor.get(), processor.get(), processor.get(), processor.get()});
  there.reduce_by(0);
  Operands here({&gpus[0], &gpus[1], &gpus[1], &gpus[2]});
  for (std::size_t who = 0; who < here.ops.size(); ++who) {
    here.reduce_by(who);
    for (std::size_t of = 0; of < here.ops.size(); ++of)
      EXPECT_TRUE(same(here.target(of), there.target(0))) << who << " into " << of;
  }
}

// Without this, the fake would accept accesses that a GPU refuses.
TEST(Peers, WithoutAccessAKernelFailsAsOnAGpu) {
  FakeDevices gpus({.gpus = 2});
  Operands operands({&gpus[0], &gpus[1]});
  EXPECT_THAT(failure(operands, 0), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(failure(operands, 1), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST(Peers, AccessOneWayIsNotTheOther) {
  FakeDevices gpus({.gpus = 2});
  Operands operands({&gpus[0], &gpus[1]});
  EXPECT_TRUE(gpus[0].reach(gpus[1]));
  EXPECT_EQ(failure(operands, 0), "none");
  EXPECT_THAT(failure(operands, 1), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST(Peers, AccessHoldsForMemoryTakenLaterAndMayBeAskedForAgain) {
  FakeDevices gpus({.gpus = 2});
  reach_each_other(gpus, 2);
  Operands operands({&gpus[0], &gpus[1]});
  reach_each_other(gpus, 2);
  EXPECT_EQ(failure(operands, 0), "none");
  EXPECT_EQ(failure(operands, 1), "none");
}

TEST(Peers, WhereTheDriverHasNoWayNothingIsReached) {
  FakeDevices gpus({.gpus = 2, .apart = {{0, 1}}});
  EXPECT_FALSE(gpus[0].reach(gpus[1]));
  EXPECT_TRUE(gpus[1].reach(gpus[0]));
  EXPECT_TRUE(gpus[0].reach(gpus[0]));
}

TEST(Peers, TheProcessorAndAGpuReachOnlyThemselves) {
  FakeDevices gpus({.gpus = 1});
  const auto processor = cpu_device(), other = cpu_device();
  EXPECT_FALSE(gpus[0].reach(*processor));
  EXPECT_FALSE(processor->reach(gpus[0]));
  EXPECT_TRUE(processor->reach(*processor));
}

TEST(Peers, AStreamWaitsForAnEventOfAnotherGpu) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const FakeGpu fake({.gpus = 2, .seed = seed});
    const Driver driver = fake.driver();
    const Context first(driver, 0), second(driver, 1);
    ASSERT_TRUE(second.reach(first));
    Memory memory(first);
    const Buffer numbers = memory.allocate(64);
    CudaStream writes(first), reads(second);
    const Event written(first);
    const Buffer seen = memory.pinned(64);
    for (unsigned char i = 1; i <= 9; ++i) writes.fill(numbers.data(), i, 64);
    writes.record(written);
    reads.wait(written);
    reads.copy(seen.data(), numbers.data(), 64);
    reads.synchronize();
    EXPECT_EQ(unsigned(seen.data()[0]), 9U) << seed;
    EXPECT_THROW(reads.record(written), Error) << "an event belongs to its GPU's streams";
  }
}

// A module of another GPU, or the address of its memory, is refused when it is queued.
TEST(Peers, AStreamTakesWorkOfItsOwnGpuAlone) {
  const FakeGpu fake({.gpus = 2});
  const Driver driver = fake.driver();
  const Context first(driver, 0), second(driver, 1);
  Memory memory(first);
  const Buffer numbers = memory.allocate(64);
  CudaStream stream(second);
  EXPECT_THROW(stream.fill(numbers.data(), 1, 64), Error);
  const KernelModule module(first, FakeGpu::image(DType::kFloat32));
  EXPECT_THROW(module.launch(stream, {}, Checksum{}), Error);
}

}  // namespace peers_test
}  // namespace lockstep::engine::cuda
