// SPDX-License-Identifier: MIT
// Tests the fake's stream capture, and the calls that it refuses during capture, like drivers do.
#include "test/engine/cuda/fake_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "engine/cuda/memory.h"
#include "engine/cuda/stream.h"

namespace lockstep::engine::cuda {
namespace fake_gpu_test {

class RecordedStream : public ::testing::TestWithParam<int> {
 protected:
  RecordedStream() {
    EXPECT_EQ(driver_.stream_begin_capture(stream_.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
  }
  CUresult end() { return driver_.stream_end_capture(stream_.handle(), &graph_); }
  void make() { ASSERT_EQ(driver_.graph_instantiate(&executable_, graph_, 0), CUDA_SUCCESS); }
  void run() {
    ASSERT_EQ(driver_.graph_launch(executable_, stream_.handle()), CUDA_SUCCESS);
    stream_.synchronize();
  }
  unsigned a() const { return unsigned(a_.data()[0]); }
  unsigned b() const { return unsigned(b_.data()[0]); }

  FakeGpu fake_{{.seed = std::uint64_t(GetParam())}};
  Driver driver_ = fake_.driver();
  Context context_{driver_, 0};
  Memory memory_{context_};
  Buffer a_ = memory_.allocate(10);
  Buffer b_ = memory_.allocate(10);
  CudaStream stream_{context_};
  CudaStream other_{context_};
  Event fork_{context_};
  Event join_{context_};
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

TEST_P(RecordedStream, RunsWhenItIsLaunchedAndAsOftenAsThat) {
  stream_.fill(a_.data(), 7, 10);
  stream_.copy(b_.data(), a_.data(), 10);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  stream_.synchronize();
  EXPECT_EQ(b(), 0U);
  make();
  run();
  EXPECT_EQ(b(), 7U);
  stream_.fill(b_.data(), 1, 10);
  run();
  EXPECT_EQ(b(), 7U);
}

// There are two branches. Each keeps its order, and the work after both comes last.
TEST_P(RecordedStream, TakesInStreamsThatWaitForIt) {
  stream_.fill(a_.data(), 1, 10);
  stream_.record(fork_);
  other_.wait(fork_);
  for (unsigned char i = 2; i <= 5; ++i) other_.fill(b_.data(), i, 10);
  other_.record(join_);
  stream_.fill(a_.data(), 9, 10);
  stream_.wait(join_);
  stream_.copy(a_.data(), b_.data(), 10);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  make();
  run();
  EXPECT_EQ(a(), 5U);
}

TEST_P(RecordedStream, HasToBeJoinedByAllThatItTookIn) {
  stream_.record(fork_);
  other_.wait(fork_);
  other_.fill(b_.data(), 2, 10);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph_, nullptr);
}

TEST_P(RecordedStream, AnUpdateChangesWhatIsLaunchedLaterAlone) {
  stream_.fill(a_.data(), 1, 10);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  make();
  ASSERT_EQ(driver_.stream_begin_capture(stream_.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  stream_.fill(a_.data(), 2, 10);
  CUgraph second = nullptr;
  ASSERT_EQ(driver_.stream_end_capture(stream_.handle(), &second), CUDA_SUCCESS);
  ASSERT_EQ(driver_.graph_launch(executable_, stream_.handle()), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_EQ(driver_.graph_exec_update(executable_, second, &info), CUDA_SUCCESS);
  stream_.synchronize();
  EXPECT_EQ(a(), 1U);
  run();
  EXPECT_EQ(a(), 2U);
}

TEST_P(RecordedStream, AnUpdateOfAnotherShapeIsRefused) {
  stream_.fill(a_.data(), 1, 10);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  make();
  ASSERT_EQ(driver_.stream_begin_capture(stream_.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  stream_.copy(a_.data(), b_.data(), 10);
  CUgraph second = nullptr;
  ASSERT_EQ(driver_.stream_end_capture(stream_.handle(), &second), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(driver_.graph_exec_update(executable_, second, &info),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  run();
  EXPECT_EQ(a(), 1U);
}

TEST_P(RecordedStream, IsBrokenByWaitingForIt) {
  EXPECT_EQ(driver_.stream_query(stream_.handle()), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_P(RecordedStream, IsBrokenByMemoryOfItsOwnThreadAlone) {
  CUdeviceptr address = 0;
  std::thread([&] {
    context_.use();
    EXPECT_EQ(driver_.mem_alloc(&address, 100), CUDA_SUCCESS);
  }).join();
  CUstreamCaptureStatus status{};
  ASSERT_EQ(driver_.stream_is_capturing(stream_.handle(), &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(driver_.mem_alloc(&address, 100), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_P(RecordedStream, IsBrokenByMemoryThatIsNotPinned) {
  const unsigned char host[10] = {};
  EXPECT_THROW(stream_.copy(a_.data(), host, 10), Error);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_P(RecordedStream, IsBrokenByAnEventThatWasNotRecordedInIt) {
  other_.record(fork_);
  EXPECT_THROW(stream_.wait(fork_), Error);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_P(RecordedStream, ItsEventsAreNotForTheHost) {
  stream_.record(fork_);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(driver_.event_query(fork_.handle()), CUDA_ERROR_CAPTURED_EVENT);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RecordedStream, ::testing::Range(1, 9));

TEST(FakeGpu, GpusReachEachOther) {
  const FakeGpu fake({.gpus = 2});
  const Driver driver = fake.driver();
  const Context first(driver, 0);
  const Context second(driver, 1);
  int can = 0;
  ASSERT_EQ(driver.device_can_access_peer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  second.use();
  CUcontext peer = nullptr;
  ASSERT_EQ(driver.ctx_get_current(&peer), CUDA_SUCCESS);
  first.use();
  EXPECT_EQ(driver.ctx_enable_peer_access(peer, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver.ctx_enable_peer_access(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

// The functions can be called without a FakeGpu, but then they fail.
TEST(FakeGpu, NobodyAnswersWhenItIsGone) {
  std::optional<FakeGpu> fake(std::in_place);
  const Driver driver = fake->driver();
  fake.reset();
  int count = 0;
  EXPECT_EQ(driver.device_get_count(&count), CUDA_ERROR_DEINITIALIZED);
}

}  // namespace fake_gpu_test
}  // namespace lockstep::engine::cuda
