// SPDX-License-Identifier: MIT
// If a rank of the lower layer leaves in the middle or fails, the others are told its name and the
// reason at once. The deadline does not matter. Ranks are threads, on one host and on several
// (sockets).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <mutex>
#include <thread>

#include "collectives/communicator/buckets.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "strategies/session/ranks.h"
#include "test/strategies/observed_device.h"

namespace lockstep::test {
namespace leaving_test {

using namespace std::chrono_literals;
using collectives::Buckets;
using collectives::Communicator;
using collectives::Gradient;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kDeadline = 30s;  // never ends a wait here
constexpr auto kAtOnce = 5s;

const std::vector<std::vector<int>> kHosts{{0, 0, 0}, {0, 0, 1}, {0, 1, 2}, {0, 1, 2, 3}};

// Holds the error of each rank's body; empty for none.
struct Told {
  std::vector<std::string> text;
  std::vector<Code> code;
  engine::Clock::time_point last{};  // when the last rank was told
};

using Body = std::function<void(Communicator&)>;

// Runs `body` on each rank. All communicators live until all ranks are back, so that no rank is
// told by the end of one.
Told run(const std::vector<int>& host, const Body& body,
         const std::function<OnReduce(int rank)>& on_reduce = {}) {
  const auto bootstraps = collectives::in_memory_bootstrap(host, 20s);
  const auto device = engine::cpu_device();
  Told told{std::vector<std::string>(host.size()), std::vector<Code>(host.size()), {}};
  std::mutex mutex;
  std::barrier all_back(std::ptrdiff_t(host.size()));
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < host.size(); ++rank)
    threads.emplace_back([&, rank] {
      auto ops = device->ops(engine::DType::kFloat32, {.threads = 1});
      if (on_reduce) ops = observed(std::move(ops), on_reduce(int(rank)));
      Communicator c(*bootstraps[rank], std::move(ops), {.deadline = kDeadline});
      try {
        body(c);
      } catch (const Error& error) {
        std::scoped_lock lock(mutex);
        told.text[rank] = error.what();
        told.code[rank] = error.code();
        told.last = engine::Clock::now();
      }
      all_back.arrive_and_wait();
    });
  threads.clear();
  return told;
}

// Rank 2 leaves in the middle of the third round, after two whole rounds.
TEST(Leaving, WithBucketsInFlightEndsTheOthersAtOnceByName) {
  for (const auto& host : kHosts)
    for (const std::size_t in_bucket : {1, 2}) {  // gradients; rank 2 begins one bucket, or half
      engine::Clock::time_point left{};
      const Told told = run(host, [&](Communicator& c) {
        // The buckets are longer than sockets hold, so that something is in flight.
        constexpr std::size_t kCount = 300'000;
        Buckets<float> buckets(c, {{nullptr, kCount}, {nullptr, kCount}, {nullptr, 9}},
                               {.bytes = in_bucket * kCount * sizeof(float)});
        for (int round = 0;; ++round)
          for (std::size_t i = 0; i < 3; ++i) {
            if (c.rank() == 2 && round == 2 && i == 1) {
              left = engine::Clock::now();
              return;
            }
            buckets.ready(i);
            if (i == 2) buckets.wait();
          }
      });
      for (std::size_t rank = 0; rank < host.size(); ++rank) {
        if (rank == 2) continue;
        EXPECT_THAT(told.text[rank], HasSubstr("rank 2 left with buckets in flight"))
            << "rank " << rank << " of " << testing::PrintToString(host);
        EXPECT_EQ(told.code[rank], Code::kAborted);
      }
      EXPECT_LT(told.last - left, kAtOnce);
    }
}

TEST(Leaving, ByAnExceptionInBackwardIsThatExceptionForTheCaller) {
  for (int again = 0; again < 20; ++again) {
    try {
      strategies::Session s(0, nullptr);
      strategies::run_ranks(
          s, 3,
          [](Communicator& c) {
            Buckets<float> buckets(c, {{nullptr, 10}, {nullptr, 20}}, {.bytes = 4});
            buckets.ready(0);
            if (c.rank() == 1) throw std::runtime_error("a broken example");
            buckets.ready(1);
            buckets.wait();
          },
          {kDeadline});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::exception& error) {
      EXPECT_STREQ(error.what(), "a broken example");
    }
  }
}

TEST(Leaving, BetweenRoundsTellsNobodyAndTheCommunicatorCanBeUsedOn) {
  for (const auto& host : kHosts) {
    const Told told = run(host, [&](Communicator& c) {
      for (int again = 0; again < 20; ++again) {
        Buckets<float> buckets(c, {{nullptr, 10}, {nullptr, 2000}}, {.bytes = 4});
        if (again % 2 == 0) continue;  // no round at all
        buckets.ready(0);
        buckets.ready(1);
        buckets.wait();
      }
      c.barrier();
    });
    for (const std::string& text : told.text) EXPECT_EQ(text, "");
  }
}

// The rank that first finds that calls differ throws, and its buckets end in the middle of a round.
// The others still report what they find themselves, and not that it left.
TEST(Leaving, ByACallThatDiffersIsThatCallOnAllRanks) {
  for (const auto& host : kHosts)
    for (int again = 0; again < 10; ++again) {
      const bool root = again % 2 == 1;
      const Told told = run(host, [&](Communicator& c) {
        Buckets<float> buckets(c, {{nullptr, 10}, {nullptr, 20}}, {.bytes = 4});
        buckets.ready(0);
        std::vector<float> values(c.rank() == 1 && !root ? 11 : 10);
        if (root) c.broadcast(std::span(values), 7);
        c.all_reduce(std::span(values));
      });
      for (std::size_t rank = 0; rank < host.size(); ++rank) {
        if (root) {
          EXPECT_THAT(told.text[rank], HasSubstr("broadcast from rank 7: there are ranks 0 to "));
        } else {
          EXPECT_THAT(told.text[rank], AllOf(HasSubstr("rank 0 for all_reduce of 10 float32"),
                                             HasSubstr("rank 1 for all_reduce of 11 float32")));
        }
        EXPECT_EQ(told.code[rank], Code::kInvalid) << "rank " << rank;
      }
    }
}

// Rank 0's kernel fails in the second sum of its buckets. (Every algorithm lets it add.) Rank 0 is
// in no wait: it is in `ready`, and then in no call.
TEST(Failing, InReadyIsThrownThereAndEndsTheOthersAtOnceWithItsText) {
  for (const auto& host : kHosts) {
    std::atomic<bool> made{false}, failed{false};  // on rank 0
    engine::Clock::time_point at{};
    const Told told = run(
        host,
        [&](Communicator& c) {
          std::vector<Gradient<float>> gradients(2000, {nullptr, 1024});
          Buckets<float> buckets(c, gradients, {.bytes = 4096});
          if (c.rank() == 0) made = true;
          for (std::size_t i = 0; i < gradients.size(); ++i) {
            buckets.ready(i);
            if (c.rank() == 0) std::this_thread::sleep_for(2ms);  // simulates computation
            if (c.rank() == 0 && failed) return;                  // rank 0 was not told
          }
          if (c.rank() != 0) buckets.wait();
        },
        [&](int rank) -> OnReduce {
          if (rank != 0) return [](const engine::ReduceArguments&) {};
          return
              [&, calls = std::make_shared<std::atomic<int>>(0)](const engine::ReduceArguments&) {
                if (!made || ++*calls < 2) return;
                failed = true;
                at = engine::Clock::now();
                engine::fail(Code::kDevice, "the kernel of rank 0 broke");
              };
        });
    for (std::size_t rank = 0; rank < host.size(); ++rank) {
      EXPECT_THAT(told.text[rank], AllOf(HasSubstr("bucket "), HasSubstr("of rank 0 broke")))
          << "rank " << rank << " of " << testing::PrintToString(host);
      EXPECT_EQ(told.code[rank], Code::kDevice);
    }
    EXPECT_LT(told.last - at, kAtOnce);
  }
}

TEST(Failing, EndsAnyLaterCallAtOnceAlsoBucketsThatAreMadeThen) {
  const Told told = run({0, 0}, [&](Communicator& c) {
    if (c.rank() == 1) return c.abort({Code::kUnavailable, "rank 1 gives up"});
    EXPECT_THROW(c.barrier(), Error);
    const auto begin = engine::Clock::now();
    EXPECT_THROW(c.allocate<float>(3), Error);
    EXPECT_LT(engine::Clock::now() - begin, kAtOnce);
    Buckets<float> buckets(c, {{nullptr, 10}});
  });
  EXPECT_EQ(told.text[0], "rank 1 gives up");
  EXPECT_EQ(told.code[0], Code::kUnavailable);
}

}  // namespace leaving_test
}  // namespace lockstep::test
