// SPDX-License-Identifier: MIT
// Everything pushed is popped once and in order, never more than the capacity is inside, and the
// end reaches everybody who waits.
#include "engine/base/bounded_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "test/support/events.h"

namespace lockstep::engine {
namespace bounded_queue_test {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(BoundedQueue, EightProducersAndEightConsumersLoseNothingAndDoubleNothing) {
  constexpr int kThreads = 8, kItems = 2000;
  for (const std::size_t capacity : {1, 3, 64}) {
    BoundedQueue<int> queue(capacity);
    std::atomic<bool> exceeded = false;
    std::vector<std::vector<int>> popped(kThreads);
    {
      std::vector<std::jthread> consumers, producers;
      for (int t = 0; t < kThreads; ++t) {
        consumers.emplace_back([&, t] {
          while (const std::optional<int> item = queue.pop()) {
            popped[std::size_t(t)].push_back(*item);
            if (queue.size() > capacity) exceeded = true;
          }
        });
        producers.emplace_back([&, t] {
          for (int i = 0; i < kItems; ++i) queue.push(t * kItems + i);
        });
      }
      producers.clear();  // joins
      queue.close();
    }
    EXPECT_FALSE(exceeded);
    std::vector<int> all;
    for (const std::vector<int>& of_one : popped) {
      // Items of one producer reach each consumer in the order in which they were pushed.
      std::vector<int> last(kThreads, -1);
      for (const int item : of_one) {
        EXPECT_LT(last[std::size_t(item / kItems)], item);
        last[std::size_t(item / kItems)] = item;
      }
      all.insert(all.end(), of_one.begin(), of_one.end());
    }
    std::ranges::sort(all);
    std::vector<int> every(kThreads * kItems);
    std::iota(every.begin(), every.end(), 0);
    EXPECT_EQ(all, every);
  }
}

TEST(BoundedQueue, AfterCloseThreeItemsArePoppedAndTheFourthPopSaysTheEnd) {
  BoundedQueue<int> queue(5);
  for (int i = 0; i < 3; ++i) queue.push(i);
  queue.close();
  EXPECT_FALSE(queue.finished());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.pop(), i);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
  EXPECT_EQ(queue.pop_until(Clock::now()), std::nullopt);
  EXPECT_TRUE(queue.finished());
}

TEST(BoundedQueue, PushAfterCloseThrows) {
  BoundedQueue<int> queue(5);
  queue.close();
  int item = 1;
  EXPECT_THAT([&] { queue.push(1); }, ThrowsMessage<Error>(HasSubstr("closed")));
  EXPECT_THAT([&] { queue.try_push(item); }, ThrowsMessage<Error>(HasSubstr("closed")));
  EXPECT_THAT([&] { queue.push_until(item, Clock::now()); },
              ThrowsMessage<Error>(HasSubstr("closed")));
  queue.close();
  EXPECT_EQ(queue.size(), 0u);
}

TEST(BoundedQueue, AFullQueueTakesNothingAndTheItemStaysWithItsOwner) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  queue.push(std::make_unique<int>(1));
  auto item = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(item));
  EXPECT_FALSE(queue.push_until(item, Clock::now() + milliseconds(5)));
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_EQ(**queue.pop(), 1);
  EXPECT_TRUE(queue.try_push(item));
  EXPECT_EQ(item, nullptr);
  EXPECT_EQ(**queue.try_pop(), 2);
}

TEST(BoundedQueue, PopsEndAtTheirDeadline) {
  BoundedQueue<int> queue(1);
  EXPECT_THAT([&] { queue.pop_until(Clock::now() + milliseconds(5)); },
              ThrowsMessage<Error>(HasSubstr("before the deadline")));
  EXPECT_EQ(queue.try_pop(), std::nullopt);
  EXPECT_FALSE(queue.finished());
  queue.push(3);
  EXPECT_EQ(queue.pop_until(Clock::now() - milliseconds(5)), 3);
}

TEST(BoundedQueue, CloseWakesAllWhoWaitToPop) {
  BoundedQueue<int> queue(1);
  std::atomic<int> ends = 0;
  std::vector<std::jthread> poppers;
  for (int i = 0; i < 8; ++i) {
    poppers.emplace_back([&, i] {
      const auto item = i % 2 ? queue.pop() : queue.pop_until(Clock::now() + std::chrono::hours(1));
      if (!item) ++ends;
    });
  }
  EXPECT_TRUE(test::await(test::others_sleep));
  queue.close();
  poppers.clear();
  EXPECT_EQ(ends, 8);
}

TEST(BoundedQueue, CloseWakesAllWhoWaitToPushAndDrainsWhatWasInside) {
  BoundedQueue<int> queue(1);
  queue.push(1);
  std::atomic<int> refused = 0;
  std::vector<std::jthread> pushers;
  for (int i = 0; i < 4; ++i) {
    pushers.emplace_back([&] {
      try {
        queue.push(2);
      } catch (const Error&) {
        ++refused;
      }
    });
  }
  EXPECT_TRUE(test::await(test::others_sleep));
  queue.close();
  pushers.clear();
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, CloseMayDropWhatIsInside) {
  using Item = std::shared_ptr<int>;
  const Item item = std::make_shared<int>(1);
  BoundedQueue<Item> queue(2);
  queue.push(item);
  queue.push(item);
  std::jthread pusher([&] { EXPECT_THROW(queue.push(nullptr), Error); });
  queue.close(BoundedQueue<Item>::Pending::kDrain);
  EXPECT_EQ(queue.size(), 2u);
  queue.close(BoundedQueue<Item>::Pending::kDrop);
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(item.use_count(), 1);
}

TEST(BoundedQueue, ACapacityOfNothingIsRefused) {
  EXPECT_THAT([] { BoundedQueue<int> queue(0); }, ThrowsMessage<Error>(HasSubstr("at least 1")));
}

}  // namespace bounded_queue_test
}  // namespace lockstep::engine
