// SPDX-License-Identifier: MIT
// Tests the input pipeline. The order of an epoch depends only on (seed, epoch). Batches return in
// the order of their requests, whichever thread reads them. The pipeline can be stopped in every
// state.
#include "engine/data/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/data/numbers.h"

namespace lockstep::engine {
namespace pipeline_test {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Ids = std::vector<std::int64_t>;

// Returns the ids of the next batch after a check of each row against its id.
Ids checked_take(Pipeline& pipeline) {
  const Batch& batch = pipeline.take();
  EXPECT_EQ(batch.inputs.size(), 2 * batch.rows());
  EXPECT_EQ(batch.targets.size(), batch.rows());
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    EXPECT_EQ(batch.inputs[2 * row], float(batch.ids[row]));
    EXPECT_EQ(batch.inputs[2 * row + 1], -float(batch.ids[row]));
    EXPECT_EQ(batch.targets[row], float(batch.ids[row]) + 0.5f);
  }
  return {batch.ids.begin(), batch.ids.end()};
}

// Takes the next batch and tries again after a timeout, for pipelines with short timeouts.
Ids patient_take(Pipeline& pipeline) {
  for (;;) {
    try {
      return checked_take(pipeline);
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout) throw;
    }
  }
}

// Returns the examples of `steps` global batches from `position` on, each assembled from `ranks`
// replicas with their own pipelines. As in a strategy, the next batch is requested before the last
// is taken. Advances `position`.
Ids trained(const Dataset& data, int ranks, DataPosition& position, int steps,
            std::uint64_t global_batch, PipelineOptions options,
            const std::vector<std::uint64_t>& shares = {}) {
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (int rank = 0; rank < ranks; ++rank) {
    pipelines.push_back(std::make_unique<Pipeline>(data, options));
  }
  const auto request = [&](const DataPosition& at) {
    const Range batch = next_batch(at, data.size(), global_batch);
    for (int rank = 0; rank < ranks; ++rank) {
      pipelines[std::size_t(rank)]->request(at.epoch, share_of(batch, rank, ranks, shares));
    }
  };
  Ids all;
  DataPosition ahead = position;
  request(ahead);
  for (int step = 0; step < steps; ++step) {
    ahead = after_batch(ahead, data.size(), global_batch);
    request(ahead);
    for (const auto& pipeline : pipelines) {
      const Ids ids = checked_take(*pipeline);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    position = after_batch(position, data.size(), global_batch);
  }
  return all;
}

int steps_of(std::uint64_t examples, std::uint64_t batch) {
  return int((examples + batch - 1) / batch);
}

// Holds readers inside `read` until the test opens it.
class Gate {
 public:
  void wait() {
    reached_.test_and_set();
    reached_.notify_all();
    open_.wait();
  }
  void wait_until_reached() { reached_.wait(false); }
  void open() { opened_.set_value(); }

 private:
  std::atomic_flag reached_;
  std::promise<void> opened_;
  std::shared_future<void> open_ = opened_.get_future().share();
};

TEST(Pipeline, AnEpochIsTheDataSetAndNothingTwiceForAnyNumberOfReplicas) {
  for (const std::uint64_t examples : {1, 2, 13, 97}) {
    const Numbers data(examples);
    for (const int ranks : {1, 2, 3, 5}) {
      for (const std::uint64_t batch : {1, 7, 10, 200}) {
        DataPosition position;
        Ids ids = trained(data, ranks, position, steps_of(examples, batch), batch,
                          {.seed = 3, .in_place = true});
        EXPECT_EQ(position, (DataPosition{1, 0}));
        std::sort(ids.begin(), ids.end());
        Ids every(examples);
        std::iota(every.begin(), every.end(), 0);
        ASSERT_EQ(ids, every) << examples << " examples, " << ranks << " ranks, batch " << batch;
      }
    }
  }
}

TEST(Pipeline, TheGlobalOrderDependsOnNoNumberOfReplicasAndNoShares) {
  const Numbers data(97);
  const auto order = [&](int ranks, std::vector<std::uint64_t> shares) {
    DataPosition position;
    return trained(data, ranks, position, 2 * steps_of(97, 10), 10, {.seed = 5, .in_place = true},
                   shares);
  };
  const Ids alone = order(1, {});
  EXPECT_EQ(alone.size(), 2u * 97);
  for (const int ranks : {2, 3, 4, 8, 13}) EXPECT_EQ(order(ranks, {}), alone) << ranks;
  EXPECT_EQ(order(3, {5, 0, 2}), alone);
}

TEST(Pipeline, SeedAndEpochGiveTheOrder) {
  const Numbers data(50);
  const auto order = [&](std::uint64_t seed, std::int64_t epoch, bool shuffle) {
    Pipeline pipeline(data, {.seed = seed, .shuffle = shuffle, .in_place = true});
    pipeline.request(epoch, {0, 50});
    return checked_take(pipeline);
  };
  EXPECT_EQ(order(1, 7, true), order(1, 7, true));
  EXPECT_NE(order(1, 7, true), order(1, 8, true));
  EXPECT_NE(order(1, 7, true), order(2, 7, true));
  Ids every(50);
  std::iota(every.begin(), every.end(), 0);
  EXPECT_NE(order(1, 0, true), every);
  EXPECT_EQ(order(1, 0, false), every);
}

TEST(Pipeline, OrdersOfEpochsMayBeAskedForInAnySequence) {
  const Numbers data(20);
  Pipeline one(data, {.in_place = true});
  for (const std::int64_t epoch : {0, 1, 0, 2, 0, 5, 1, 1000000007}) {
    Pipeline fresh(data, {.in_place = true});
    one.request(epoch, {3, 17});
    fresh.request(epoch, {3, 17});
    EXPECT_EQ(checked_take(one), checked_take(fresh)) << epoch;
  }
}

TEST(Pipeline, ARunGoesOnFromASavedPositionAsIfUndisturbed) {
  const Numbers data(97);
  const PipelineOptions options{.seed = 9, .threads = 2};
  DataPosition whole, parted;
  const Ids undisturbed = trained(data, 2, whole, 25, 10, options);
  Ids ids = trained(data, 2, parted, 8, 10, options);
  const DataPosition saved = parted;
  EXPECT_EQ(saved, (DataPosition{0, 80}));
  DataPosition restored = saved;
  const Ids rest = trained(data, 3, restored, 17, 10, options);
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_EQ(ids, undisturbed);
  EXPECT_EQ(restored, whole);
}

TEST(Pipeline, FourThreadsGiveTheBatchesOfNone) {
  const Numbers data(301);
  DataPosition a, b;
  const Ids in_place = trained(data, 1, a, 60, 16, {.seed = 2, .in_place = true});
  EXPECT_EQ(trained(data, 1, b, 60, 16, {.seed = 2, .threads = 4}), in_place);
}

TEST(Pipeline, FourThreadsReadAtOnce) {
  std::latch inside(4);
  std::atomic<int> reads = 0;
  const Numbers data(4, [&](std::uint64_t) {
    ++reads;
    inside.arrive_and_wait();
  });
  Pipeline one_batch(data, {.threads = 4});
  one_batch.request(0, {0, 4});
  EXPECT_EQ(checked_take(one_batch).size(), 4u);
  EXPECT_EQ(reads, 4);
}

TEST(Pipeline, ThreadsReadAheadOverSeveralBatches) {
  std::latch inside(3);
  const Numbers data(9, [&](std::uint64_t index) {
    if (index % 3 == 0) inside.arrive_and_wait();
  });
  Pipeline pipeline(data, {.shuffle = false, .threads = 3});
  for (std::size_t i = 0; i < 3; ++i) pipeline.request(0, {3 * i, 3 * i + 1});
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(checked_take(pipeline), Ids{3 * i});
}

TEST(Pipeline, ManyRequestsMayBeOutstandingAndComeBackInOrder) {
  const Numbers data(100);
  Pipeline pipeline(data, {.shuffle = false, .threads = 3});
  for (std::size_t i = 0; i < 100; ++i) {
    pipeline.request(0, {i, 100});
    EXPECT_EQ(pipeline.outstanding(), i + 1);
  }
  for (std::size_t i = 0; i < 100; ++i) {
    const Ids ids = checked_take(pipeline);
    ASSERT_EQ(ids.size(), 100 - i);
    ASSERT_EQ(ids.front(), std::int64_t(i));
    EXPECT_EQ(pipeline.outstanding(), 99 - i);
  }
}

TEST(Pipeline, ATakenBatchStaysWhileTheNextAreRequested) {
  const Numbers data(8);
  Pipeline pipeline(data, {.shuffle = false, .threads = 2});
  pipeline.request(0, {0, 2});
  const Batch& batch = pipeline.take();
  for (std::size_t i = 1; i < 4; ++i) pipeline.request(0, {2 * i, 2 * i + 2});
  EXPECT_EQ(Ids(batch.ids.begin(), batch.ids.end()), (Ids{0, 1}));
  EXPECT_EQ(std::vector<float>(batch.inputs.begin(), batch.inputs.end()),
            (std::vector<float>{0, 0, 1, -1}));
}

TEST(Pipeline, EmptyPartsAreEmptyBatches) {
  const Numbers data(5, [](std::uint64_t) { FAIL() << "nothing to read"; });
  for (const bool in_place : {true, false}) {
    Pipeline pipeline(data, {.in_place = in_place});
    pipeline.request(0, {5, 5});
    pipeline.request(3, {0, 0});
    EXPECT_EQ(checked_take(pipeline), Ids{});
    EXPECT_EQ(checked_take(pipeline), Ids{});
  }
  const Numbers empty(0);
  Pipeline pipeline(empty, {});
  pipeline.request(0, {0, 0});
  EXPECT_EQ(checked_take(pipeline), Ids{});
}

TEST(Pipeline, AnErrorOfAReaderComesOutOfTheTakeOfItsBatch) {
  const Numbers data(12, [](std::uint64_t index) {
    if (index == 5) throw Error(Code::kCorrupt, "example 5 is broken");
  });
  for (const bool in_place : {true, false}) {
    Pipeline pipeline(data, {.shuffle = false, .threads = 4, .in_place = in_place});
    for (std::size_t i = 0; i < 3; ++i) pipeline.request(0, {4 * i, 4 * i + 4});
    EXPECT_EQ(checked_take(pipeline), (Ids{0, 1, 2, 3}));
    EXPECT_THAT([&] { pipeline.take(); }, ThrowsMessage<Error>(HasSubstr("example 5 is broken")));
    EXPECT_EQ(checked_take(pipeline), (Ids{8, 9, 10, 11}));
    pipeline.request(0, {0, 2});
    EXPECT_EQ(checked_take(pipeline), (Ids{0, 1}));
  }
}

TEST(Pipeline, WhatADataSetThrowsIsAnErrorThatNamesTheExample) {
  const auto code_of = [](const std::function<void()>& thrown) {
    const Numbers data(12, [&](std::uint64_t index) {
      if (index == 5) thrown();
    });
    Pipeline pipeline(data, {.shuffle = false});
    pipeline.request(0, {4, 8});
    try {
      pipeline.take();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("data: example 5 of numbers: "));
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return Code::kAborted;
  };
  EXPECT_EQ(code_of([] { throw Error(Code::kCorrupt, "bits"); }), Code::kCorrupt);
  EXPECT_EQ(code_of([] { throw std::bad_alloc(); }), Code::kMemory);
  EXPECT_EQ(code_of([] { throw std::ios_base::failure("disk"); }), Code::kIo);
  EXPECT_EQ(code_of([] { throw std::out_of_range("index"); }), Code::kInvalid);
  EXPECT_EQ(code_of([] { throw 5; }), Code::kInvalid);
}

TEST(Pipeline, AReaderThatHangsEndsTheWaitingAndIsDescribed) {
  Gate gate;
  const Numbers data(2, [&](std::uint64_t) { gate.wait(); });
  Pipeline pipeline(data, {.timeout = std::chrono::milliseconds(20)});
  pipeline.request(0, {0, 1});
  EXPECT_THAT(
      [&] { pipeline.take(); },
      ThrowsMessage<Error>(HasSubstr("0 of 1 examples of a batch read after 20 ms (numbers)")));
  EXPECT_EQ(pipeline.outstanding(), 1u);
  gate.open();
}

TEST(Pipeline, CancelForgetsWhatWasRequested) {
  const Numbers data(30);
  for (const bool in_place : {true, false}) {
    Pipeline pipeline(data, {.shuffle = false, .threads = 2, .in_place = in_place});
    pipeline.cancel();
    for (std::size_t i = 0; i < 10; ++i) pipeline.request(0, {i, i + 5});
    pipeline.take();
    pipeline.cancel();
    EXPECT_EQ(pipeline.outstanding(), 0u);
    EXPECT_THAT([&] { pipeline.take(); }, ThrowsMessage<Error>(HasSubstr("without a request")));
    pipeline.request(0, {20, 23});
    EXPECT_EQ(checked_take(pipeline), (Ids{20, 21, 22}));
  }
}

TEST(Pipeline, CancelDoesNotWaitForAReaderWhoseRowsCountForNoOtherBatch) {
  Gate first, second;
  const Numbers data(8, [&](std::uint64_t index) {
    if (index == 0) first.wait();
    if (index == 4) second.wait();
  });
  Pipeline pipeline(data,
                    {.shuffle = false, .threads = 2, .timeout = std::chrono::milliseconds(50)});
  pipeline.request(0, {0, 1});
  first.wait_until_reached();
  pipeline.cancel();
  pipeline.request(0, {4, 5});
  second.wait_until_reached();
  first.open();
  EXPECT_THAT([&] { pipeline.take(); }, ThrowsMessage<Error>(HasSubstr("0 of 1 examples")));
  second.open();
  pipeline.request(0, {2, 7});
  EXPECT_EQ(patient_take(pipeline), Ids{4});
  EXPECT_EQ(patient_take(pipeline), (Ids{2, 3, 4, 5, 6}));
}

TEST(Pipeline, ItCanBeDestroyedInEveryState) {
  const Numbers data(1000, [](std::uint64_t index) {
    if (index == 999) throw Error(Code::kIo, "the last one");
  });
  for (const int threads : {1, 4}) {
    const PipelineOptions options{.shuffle = false, .threads = threads};
    { Pipeline unused(data, options); }
    {
      Pipeline requested(data, options);
      for (int i = 0; i < 50; ++i) requested.request(0, {0, 1000});
    }
    {
      Pipeline taken(data, options);
      for (int i = 0; i < 5; ++i) taken.request(0, {0, 100});
      taken.take();
    }
    {
      Pipeline failed(data, options);
      failed.request(0, {990, 1000});
      EXPECT_THROW(failed.take(), Error);
    }
    {
      Pipeline failed_unseen(data, options);
      failed_unseen.request(0, {990, 1000});
    }
    {
      Pipeline cancelled(data, options);
      for (int i = 0; i < 5; ++i) cancelled.request(0, {0, 900});
      cancelled.cancel();
    }
  }
}

TEST(Pipeline, NoReaderIsInsideAfterItsEnd) {
  Gate gate;
  std::atomic<int> begun = 0, ended = 0;
  const Numbers data(100, [&](std::uint64_t) {
    ++begun;
    gate.wait();
    ++ended;
  });
  auto pipeline = std::make_unique<Pipeline>(data, PipelineOptions{.threads = 3});
  for (int i = 0; i < 3; ++i) pipeline->request(0, {0, 100});
  gate.wait_until_reached();
  std::jthread opener([&] { gate.open(); });
  pipeline.reset();
  EXPECT_EQ(begun, ended);
  EXPECT_GE(begun, 1);
}

TEST(Pipeline, WhatCannotBeIsRefused) {
  const Numbers data(10);
  EXPECT_THAT([&] { Pipeline(data, {.threads = 0}); },
              ThrowsMessage<Error>(HasSubstr("0 prefetching threads")));
  EXPECT_NO_THROW(Pipeline(data, {.threads = 0, .in_place = true}));
  Pipeline pipeline(data, {});
  EXPECT_THAT(
      [&] {
        pipeline.request(0, {5, 11});
      },
      ThrowsMessage<Error>(HasSubstr("positions 5 to 11 of an epoch of 10 examples")));
  EXPECT_THAT(
      [&] {
        pipeline.request(0, {5, 4});
      },
      ThrowsMessage<Error>(HasSubstr("positions 5 to 4")));
  EXPECT_THAT([&] { pipeline.request(-1, {0, 1}); }, ThrowsMessage<Error>(HasSubstr("epoch -1")));
  EXPECT_THAT([&] { pipeline.take(); }, ThrowsMessage<Error>(HasSubstr("without a request")));
  EXPECT_EQ(pipeline.outstanding(), 0u);
}

// A device copies a batch at once, together with its own words at the end of the block.
TEST(Pipeline, ABatchLiesInOneBlockWithRoomAtItsEnd) {
  const Numbers numbers(20);
  std::size_t given = 0;
  Pipeline pipeline(numbers, {.shuffle = false, .in_place = true, .memory = [&](std::size_t bytes) {
                                ++given;
                                return Buffer(bytes);
                              }});
  for (const std::size_t rows : {7, 3, 5}) {
    pipeline.request(0, {2, 2 + rows});
    const Batch& batch = pipeline.take();
    const std::span<std::byte> block = batch.block();
    const std::byte* end = block.data();
    const auto follows = [&](auto array) {  // adjacent and aligned
      const auto bytes = std::as_bytes(array);
      EXPECT_GE(bytes.data(), end);
      EXPECT_EQ((bytes.data() - block.data()) % 16, 0);
      end = bytes.data() + bytes.size();
    };
    follows(batch.inputs), follows(batch.targets), follows(batch.ids);
    EXPECT_GE(block.data() + block.size() - end, std::ptrdiff_t(Batch::kRoom));
    EXPECT_EQ(batch.ids.front(), 2);
    EXPECT_EQ(batch.ids.size(), rows);
  }
  EXPECT_LE(given, 2u) << "memory goes round";
  Pipeline of_heap(numbers, {.in_place = true});
  of_heap.request(0, {0, 4});
  EXPECT_TRUE(of_heap.take().block().empty());
}

}  // namespace pipeline_test
}  // namespace lockstep::engine
