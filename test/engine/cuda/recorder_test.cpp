// SPDX-License-Identifier: MIT
// Tests Recorder (engine/ops/recorder.h) on a fake GPU, whose streams run in any order that waits
// allow.
#include "engine/ops/recorder.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops/ops.h"
#include "test/engine/cuda/fake_devices.h"

namespace lockstep::engine::cuda {
namespace recorder_test {

constexpr std::size_t kRows = 8, kColumns = 64, kCount = kRows * kColumns;

// Owns the kernels and some arrays of one replica.
class Player {
 public:
  explicit Player(Device& device) : ops_(device.ops(DType::kFloat32, {})) {
    for (Buffer& array : arrays_) array = ops_->allocate(kCount * sizeof(float), "an array");
    state_ = ops_->publish({.examples = kRows, .inverse_examples = 1.0 / kRows});
  }
  Ops& ops() { return *ops_; }
  Recorder& recorder() { return *ops_->recorder(); }
  Tensor tensor(std::size_t i) { return {arrays_[i].data(), {kRows, kColumns}, DType::kFloat32}; }
  void set(std::size_t i, float value) {
    const std::vector<float> values(kCount, value);
    ops_->write(values.data(), arrays_[i].data(), kCount * sizeof(float));
  }
  float get(std::size_t i) {
    std::vector<float> values(kCount);
    ops_->read(arrays_[i].data(), values.data(), kCount * sizeof(float));
    for (const float value : values) EXPECT_EQ(value, values[0]);
    return values[0];
  }
  void add(std::size_t a, std::size_t b, std::size_t to) {  // queued with the kernels
    ops_->add(state_, tensor(a), tensor(b), tensor(to));
  }
  void copy(Tensor from, std::size_t to) {  // queued with the reductions
    const std::array<const std::byte*, 1> sources{from.data};
    const std::array<std::byte*, 1> targets{arrays_[to].data()};
    ReduceArguments arguments;
    arguments.from = sources;
    arguments.to = targets;
    arguments.count = kCount;
    ops_->reduce(arguments);
  }
  const StepState* state() const { return state_; }

 private:
  std::unique_ptr<Ops> ops_;
  std::array<Buffer, 4> arrays_;
  const StepState* state_ = nullptr;
};

TEST(RecorderTest, NothingIsDoneUntilItIsRepeated) {
  const auto gpu = fake_device();
  Player one(*gpu);
  one.set(0, 1), one.set(1, 2);
  one.ops().synchronize();
  one.recorder().begin(0, nullptr);
  one.add(0, 1, 0);
  one.recorder().leave();
  ASSERT_EQ(one.recorder().end({}), "");
  EXPECT_EQ(one.get(0), 1);
  for (int times = 1; times <= 3; ++times) {
    one.recorder().ready();
    one.recorder().repeat(0, {});
    EXPECT_EQ(one.get(0), 1 + 2 * times);
  }
}

// A replay runs after the reductions queued before it, and before later ones.
TEST(RecorderTest, ARepetitionHasItsPlaceAmongReductions) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto gpu = fake_device({.seed = seed});
    Player one(*gpu);
    one.set(0, 1), one.set(1, 2), one.set(2, 30), one.set(3, 0);
    one.ops().synchronize();
    one.recorder().begin(7, nullptr);
    one.add(0, 1, 0);
    one.recorder().leave();
    ASSERT_EQ(one.recorder().end({}), "");
    one.copy(one.tensor(2), 1);
    one.recorder().ready();
    one.recorder().repeat(7, {});
    one.copy(one.tensor(0), 3);
    one.ops().record_event(0);
    one.ops().wait_for_event(0);
    EXPECT_EQ(one.get(3), 31);
  }
}

// The second replica's kernels add to the result of the first one's reduction, and the first
// replica uses the sum. Each replica queues other work before, and reads afterwards.
TEST(RecorderTest, ReplicasAreRepeatedTogether) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    FakeDevices gpus({.gpus = 2, .seed = seed});
    ASSERT_TRUE(gpus[0].reach(gpus[1]) && gpus[1].reach(gpus[0]));
    Player one(gpus[0]), two(gpus[1]);
    one.set(0, 1), two.set(0, 10), two.set(1, 0), one.set(3, 0);
    one.ops().synchronize(), two.ops().synchronize();
    Recorder* const second = &two.recorder();
    one.recorder().begin(0, nullptr);
    two.recorder().begin(0, &one.recorder());
    one.add(0, 0, 1);  // 2 n
    one.ops().reduce_behind_kernels();
    one.copy(one.tensor(1), 2);
    one.ops().record_event(0);
    two.ops().reduce_behind(one.ops(), 0);
    two.copy(one.tensor(2), 1);
    two.ops().go_behind_reductions();
    two.add(0, 1, 0);  // m + 2 n
    two.recorder().leave();
    one.recorder().leave();
    ASSERT_EQ(one.recorder().end({&second, 1}), "");
    float m = 10;
    for (const float n : {1.0f, 3.0f, 5.0f}) {
      one.set(0, n);
      if (n == 3) two.set(0, m = 100);
      two.recorder().ready();
      one.recorder().ready();
      one.recorder().repeat(0, {&second, 1});
      two.recorder().follow(0, one.recorder());
      m += 2 * n;
      EXPECT_EQ(two.get(0), m);
    }
  }
}

TEST(RecorderTest, WhatTheHostTakesPartInIsRefusedAndNothingIsDone) {
  using Call = void (*)(Player&);
  const std::pair<Call, std::string> calls[] = {
      {[](Player& p) { p.get(0); }, "a stream is waited for while it is recorded"},
      {[](Player& p) { p.ops().synchronize(); }, "a stream is waited for while it is recorded"},
      {[](Player& p) { p.set(0, 9); },
       "memory of the host is written to the GPU while that is recorded"},
      {[](Player& p) { p.ops().checksum(p.tensor(0).data, 16, 0); },
       "a stream is waited for while it is recorded"},
  };
  for (const auto& [call, why] : calls) {
    const auto gpu = fake_device();
    Player one(*gpu), two(*gpu);
    one.set(0, 1), one.set(1, 2), two.set(0, 5);
    one.ops().synchronize(), two.ops().synchronize();
    Recorder* const second = &two.recorder();
    one.recorder().begin(0, nullptr);
    two.recorder().begin(0, &one.recorder());
    one.add(0, 1, 0);
    call(two);
    two.add(0, 0, 0);
    one.add(0, 1, 0);
    two.recorder().leave();
    one.recorder().leave();
    EXPECT_EQ(one.recorder().end({&second, 1}), why);
    EXPECT_EQ(one.get(0), 1);
    EXPECT_EQ(two.get(0), 5);
    one.add(0, 1, 0), two.add(0, 0, 0);  // as if nothing had happened
    EXPECT_EQ(one.get(0), 3);
    EXPECT_EQ(two.get(0), 10);
  }
}

// The replica fails during capture, and another one begins.
TEST(RecorderTest, ARecordingMayBeGivenUp) {
  const auto gpu = fake_device();
  {
    Player one(*gpu);
    one.recorder().begin(0, nullptr);
    one.add(0, 1, 0);
  }
  Player two(*gpu);
  two.set(0, 4);
  EXPECT_EQ(two.get(0), 4);
}

// A GPU cannot read the host's memory, but the emulator can.
TEST(CudaOpsDeathTest, KernelsAreNotGivenWordsOfAStepThatLieOnTheHost) {
  const std::unique_ptr<Device> device = fake_device();
  Player player(*device);
  const StepState state{.examples = kRows};
  EXPECT_DEATH(player.ops().clear(&state, player.tensor(0)), "publish gave");
}

}  // namespace recorder_test
}  // namespace lockstep::engine::cuda
