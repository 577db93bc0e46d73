// SPDX-License-Identifier: MIT
#include "engine/cuda/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cuda/memory.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace stream_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class StreamTest : public ::testing::Test {
 protected:
  explicit StreamTest(std::uint64_t seed = 1) : fake_({.seed = seed}) {}
  FakeGpu fake_;
  Driver driver_ = fake_.driver();
  Context context_{driver_, 0};
  Memory memory_{context_};
  Buffer a_ = memory_.allocate(1000);
  Buffer b_ = memory_.allocate(1000);
};

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

TEST_F(StreamTest, WorkIsSeenAfterWaitingAndNotBefore) {
  CudaStream stream(context_);
  stream.fill(a_.data(), 5, 1000);
  stream.copy(b_.data(), a_.data(), 1000);
  EXPECT_EQ(b_.data()[999], std::byte{0});
  stream.synchronize();
  EXPECT_EQ(b_.data()[999], std::byte{5});
}

TEST_F(StreamTest, NothingIsQueuedOfNoBytes) {
  CudaStream stream(context_);
  stream.copy(nullptr, nullptr, 0);
  stream.fill(nullptr, 1, 0);
  stream.synchronize();
}

TEST_F(StreamTest, MemoryOfTheHostIsReadBeforeTheCallReturns) {
  CudaStream stream(context_);
  std::vector<unsigned char> host(1000, 9);
  stream.copy(a_.data(), host.data(), 1000);
  host.assign(1000, 1);
  stream.copy(host.data(), a_.data(), 1000);
  EXPECT_EQ(host, std::vector<unsigned char>(1000, 9));
}

TEST_F(StreamTest, PinnedMemoryIsReadWhenTheWorkRuns) {
  CudaStream stream(context_);
  const Buffer host = memory_.pinned(1000);
  stream.copy(a_.data(), host.data(), 1000);
  host.data()[0] = std::byte{3};
  stream.synchronize();
  EXPECT_EQ(a_.data()[0], std::byte{3});
}

// Runs each test with several seeds, each with another order of streams.
class StreamOrders : public StreamTest, public ::testing::WithParamInterface<int> {
 protected:
  StreamOrders() : StreamTest(std::uint64_t(GetParam())) {}
};

TEST_P(StreamOrders, AnEventOrdersTwoStreams) {
  CudaStream producer(context_);
  CudaStream consumer(context_);
  const Event made(context_);
  for (unsigned char i = 1; i <= 5; ++i) producer.fill(a_.data(), i, 1000);
  producer.record(made);
  consumer.wait(made);
  consumer.copy(b_.data(), a_.data(), 1000);
  consumer.synchronize();
  EXPECT_EQ(b_.data()[999], std::byte{5});
}

// An event marks one position: later records do not delay earlier waits.
TEST_P(StreamOrders, AnEventMayBeRecordedAgain) {
  CudaStream producer(context_);
  CudaStream consumer(context_);
  const Event first(context_);
  const Event back(context_);
  producer.fill(a_.data(), 1, 1000);
  producer.record(first);
  consumer.wait(first);
  consumer.copy(b_.data(), a_.data(), 1000);
  consumer.record(back);
  producer.wait(back);
  producer.fill(a_.data(), 2, 1000);
  producer.record(first);
  consumer.wait(first);
  consumer.synchronize();
  EXPECT_EQ(b_.data()[0], std::byte{1});
  EXPECT_EQ(a_.data()[0], std::byte{2});
}

TEST_P(StreamOrders, AnEventIsDoneWithTheWorkBeforeIt) {
  CudaStream stream(context_);
  const Event event(context_);
  EXPECT_TRUE(event.done());
  stream.fill(a_.data(), 1, 1000);
  stream.record(event);
  stream.fill(b_.data(), 1, 1000);
  event.synchronize(seconds(10));
  EXPECT_TRUE(event.done());
  EXPECT_EQ(a_.data()[0], std::byte{1});
  stream.synchronize();
}

INSTANTIATE_TEST_SUITE_P(Seeds, StreamOrders, ::testing::Range(1, 21));

// This shows that the tests above, and all others that use the fake, can fail.
TEST(FakeOrders, WithoutAnEventSomeSeedsRunTheConsumerFirst) {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const FakeGpu fake({.seed = seed});
    const Driver driver = fake.driver();
    const Context context(driver, 0);
    Memory memory(context);
    const Buffer a = memory.allocate(10);
    const Buffer b = memory.allocate(10);
    CudaStream producer(context);
    CudaStream consumer(context);
    producer.fill(a.data(), 5, 10);
    consumer.copy(b.data(), a.data(), 10);
    producer.synchronize();
    consumer.synchronize();
    early += b.data()[0] == std::byte{0};
  }
  EXPECT_GE(early, 5);
  EXPECT_LE(early, 15);
}

TEST_F(StreamTest, TimeIsMeasuredBetweenTimedEvents) {
  CudaStream stream(context_);
  const Event from(context_, true);
  const Event to(context_, true);
  stream.record(from);
  for (int i = 0; i < 9; ++i) stream.fill(a_.data(), 1, 1000);
  stream.record(to);
  stream.synchronize();
  EXPECT_NEAR(milliseconds_between(context_, from, to), 0.01, 1e-6);
}

TEST_F(StreamTest, WorkThatNeverEndsIsNotWaitedForLongerThanTheDeadline) {
  CudaStream stream(context_);
  fake_.stick();
  stream.fill(a_.data(), 1, 1000);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(refusal(Code::kTimeout, [&] { stream.synchronize(milliseconds(30)); }),
            "cuda:0: the work of a stream did not come to an end within 30 ms");
  EXPECT_GE(Clock::now() - start, milliseconds(30));
  EXPECT_LT(Clock::now() - start, seconds(20));
}

TEST_F(StreamTest, AWrongAddressIsTheDriversError) {
  CudaStream stream(context_);
  EXPECT_EQ(refusal(Code::kDevice, [&] { stream.fill(a_.data(), 1, 1025); }),
            "cuda:0: cuMemsetD8Async failed: invalid argument (CUDA_ERROR_INVALID_VALUE)");
  EXPECT_EQ(refusal(Code::kDevice, [&] { stream.copy(a_.data() + 500, b_.data(), 525); }),
            "cuda:0: cuMemcpyAsync failed: invalid argument (CUDA_ERROR_INVALID_VALUE)");
}

TEST_F(StreamTest, AfterThatNobodyWaitsForItAgain) {
  CudaStream stream(context_);
  const Event event(context_);
  fake_.stick();
  stream.fill(a_.data(), 1, 1000);
  stream.record(event);
  EXPECT_EQ(refusal(Code::kTimeout, [&] { event.synchronize(milliseconds(1)); }),
            "cuda:0: the work before an event did not come to an end within 1 ms");
  const Clock::time_point start = Clock::now();
  const std::string given_up = "is not waited for: the GPU was stuck before";
  EXPECT_THAT(refusal(Code::kTimeout, [&] { stream.synchronize(); }), HasSubstr(given_up));
  EXPECT_THAT(refusal(Code::kTimeout, [&] { event.synchronize(CudaStream::kDeadline); }),
              HasSubstr(given_up));
  EXPECT_THAT(refusal(Code::kTimeout, [&] { wait_for_all(context_, CudaStream::kDeadline); }),
              HasSubstr(given_up));
  EXPECT_LT(Clock::now() - start, seconds(20));
}

TEST_F(StreamTest, AllWorkOfTheGpuIsWaitedForAndNoMore) {
  CudaStream first(context_), second(context_);
  first.fill(a_.data(), 1, 1000);
  second.fill(b_.data(), 2, 1000);
  wait_for_all(context_, seconds(20));
  EXPECT_EQ(a_.data()[0], std::byte{1});
  EXPECT_EQ(b_.data()[0], std::byte{2});
  fake_.stick();
  second.fill(b_.data(), 3, 1000);
  EXPECT_EQ(refusal(Code::kTimeout, [&] { wait_for_all(context_, milliseconds(30)); }),
            "cuda:0: all work of the GPU did not come to an end within 30 ms");
}

// A process may end after its GPU hung while the process had nothing queued.
TEST_F(StreamTest, AnIdleGpuIsNotWaitedForEvenIfItIsStuck) {
  CudaStream stream(context_);
  stream.fill(a_.data(), 1, 1000);
  stream.synchronize();
  fake_.stick();
  const Clock::time_point start = Clock::now();
  EXPECT_NO_THROW(wait_for_all(context_, seconds(60)));
  EXPECT_LT(Clock::now() - start, seconds(20));
}

TEST_F(StreamTest, ItsEndGivesAllBack) {
  const std::string before = fake_.left();
  {
    const CudaStream stream(context_);
    const Event event(context_);
    EXPECT_NE(fake_.left(), before);
  }
  EXPECT_EQ(fake_.left(), before);
}

}  // namespace stream_test
}  // namespace lockstep::engine::cuda
