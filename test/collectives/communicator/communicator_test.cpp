// SPDX-License-Identifier: MIT
// The lower layer with ranks that are threads. Sums are exact, a difference between ranks is an
// error at the call, and no rank waits forever.
#include "collectives/communicator/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <latch>
#include <numeric>
#include <thread>

#include "collectives/communicator/buckets.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "strategies/session/ranks.h"

namespace lockstep::test {
namespace communicator_test {

using namespace std::chrono_literals;
using collectives::Buckets;
using collectives::Communicator;
using collectives::Gradient;
using collectives::Reduce;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::size_t> kCounts{0,    1,     3,      1023,   1024,  1025,
                                       4097, 65536, 262144, 262145, 600001};

strategies::Session session() {
  return strategies::Session(0, nullptr);
}

void on_ranks(int ranks, const std::function<void(Communicator&)>& body,
              std::chrono::milliseconds deadline = 20s) {
  strategies::Session s = session();
  strategies::run_ranks(s, ranks, body, {deadline});
}

// Fills in small whole numbers, so that every sum is exact, and so is the mean over 1, 2 or 4
// ranks.
template <class T>
void fill(std::span<T> values, int rank, int round = 0) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = T((i * 7 + std::size_t(rank) * 13 + std::size_t(round)) % 101);
}

template <class T>
std::size_t wrong(std::span<const T> values, int ranks, Reduce operation, int round = 0) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    T sum = 0;
    for (int r = 0; r < ranks; ++r)
      sum += T((i * 7 + std::size_t(r) * 13 + std::size_t(round)) % 101);
    count += values[i] != (operation == Reduce::kMean ? T(double(sum) * (1.0 / ranks)) : sum);
  }
  return count;
}

template <class T>
void sums_are_exact(Communicator& c) {
  int round = 0;
  for (const std::size_t count : kCounts)
    for (const Reduce operation : {Reduce::kSum, Reduce::kMean}) {
      std::vector<T> values(count);
      fill<T>(values, c.rank(), ++round);
      c.all_reduce(std::span<T>(values), operation);
      EXPECT_EQ(wrong<T>(values, c.size(), operation, round), 0u) << count << " rank " << c.rank();
    }
}

TEST(Communicator, SumsAndMeansAreExactForAnyLengthAndOneToFourRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    on_ranks(ranks, [](Communicator& c) {
      sums_are_exact<float>(c);
      sums_are_exact<double>(c);
    });
}

TEST(Communicator, AllocatedMemoryIsSummedWhereItLiesAndAPartOfItToo) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    on_ranks(ranks, [&](Communicator& c) {
      for (const std::size_t count : {std::size_t(0), std::size_t(1), std::size_t(5000)}) {
        const std::span<float> values = c.allocate<float>(count);
        ASSERT_EQ(values.size(), count);
        for (int round = 0; round < 3; ++round) {
          fill(values, c.rank(), round);
          c.all_reduce(values);
          EXPECT_EQ(wrong<float>(values, ranks, Reduce::kSum, round), 0u);
        }
        const std::span<float> part = values.subspan(count / 3);
        fill(part, c.rank());
        c.all_reduce(part, Reduce::kMean);
        EXPECT_EQ(wrong<float>(part, ranks, Reduce::kMean), 0u);
      }
      const std::span<double> doubles = c.allocate<double>(777);
      fill(doubles, c.rank());
      c.all_reduce(doubles, Reduce::kMean);
      EXPECT_EQ(wrong<double>(doubles, ranks, Reduce::kMean), 0u);
    });
}

TEST(Communicator, ABroadcastCarriesEveryBit) {
  on_ranks(3, [](Communicator& c) {
    for (int root = 0; root < 3; ++root) {
      const std::vector<double> mine{0.0, -0.0, 1e-310, -INFINITY, 0.1, NAN, double(root)};
      std::vector<double> values(mine.size(), 123.0 + c.rank());
      if (c.rank() == root) values = mine;
      c.broadcast(std::span(values), root);
      EXPECT_EQ(std::memcmp(values.data(), mine.data(), mine.size() * sizeof(double)), 0) << root;
    }
    std::vector<float> many(300000, float(c.rank()));
    c.broadcast(std::span(many), 2);
    EXPECT_EQ(many, std::vector<float>(300000, 2.0f));
  });
}

// Sums over sockets are exact too. Both hosts are this machine.
TEST(Communicator, SumsAreExactBetweenHostsToo) {
  const auto bootstraps = collectives::in_memory_bootstrap({0, 0, 1}, 20s);
  const auto device = engine::cpu_device();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Communicator c(*bootstraps[std::size_t(rank)],
                     device->ops(engine::DType::kFloat32, {.threads = 1}), {.deadline = 20s});
      sums_are_exact<float>(c);
      c.barrier();
      std::vector<double> values(5000);
      Buckets<double> buckets(c, {{values.data(), 5000}, {nullptr, 3}},
                              {.operation = Reduce::kSum});
      fill(buckets.gradient(0), rank);
      fill(buckets.gradient(1), rank);
      buckets.ready(0);
      buckets.ready(1);
      buckets.wait();
      EXPECT_EQ(wrong<double>(buckets.gradient(0), 3, Reduce::kSum), 0u);
      EXPECT_EQ(wrong<double>(buckets.gradient(1), 3, Reduce::kSum), 0u);
      c.barrier();
    });
}

TEST(Communicator, ARankThatDoesNotComeIsNamedWithinTheDeadlineAndTheFirstReasonStays) {
  std::atomic<int> named{0};
  on_ranks(
      3,
      [&](Communicator& c) {
        std::vector<float> values(100);
        c.all_reduce(std::span(values));
        if (c.rank() == 2) return;
        for (int again = 0; again < 2; ++again) {
          const auto begin = engine::Clock::now();
          try {
            c.all_reduce(std::span(values));
            ADD_FAILURE() << "a rank was missing";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Code::kTimeout);
            EXPECT_THAT(error.what(),
                        AllOf(HasSubstr("all_reduce"), HasSubstr("rank 2 is missing")));
            EXPECT_LT(engine::Clock::now() - begin, again == 0 ? 300ms + 2s : 200ms);
            ++named;
          }
        }
      },
      300ms);
  EXPECT_EQ(named, 4);
}

// A late call names itself, its bytes, the ranks that came and the missing ranks.
TEST(Communicator, ALateCallNamesItselfAndItsBytes) {
  std::string text;
  on_ranks(
      2,
      [&](Communicator& c) {
        std::vector<double> values(100);
        if (c.rank() == 1) return;
        try {
          c.all_reduce(std::span(values));
        } catch (const Error& error) {
          text = error.what();
        }
      },
      200ms);
  EXPECT_THAT(text, AllOf(HasSubstr("all_reduce of 100 float64 (sum), 800 bytes"),
                          HasSubstr("waited 200 ms"), HasSubstr("rank 1 is missing: "),
                          testing::EndsWith("; arrived: rank 0")));
}

// A call's own deadline may be shorter or longer than that of the options.
TEST(Communicator, ACallMayHaveADeadlineOfItsOwn) {
  std::atomic<int> named{0};
  on_ranks(
      2,
      [&](Communicator& c) {
        std::vector<float> values(10);
        c.all_reduce(std::span(values), Reduce::kSum, 20s);
        if (c.rank() == 1) return;
        EXPECT_THROW(c.barrier(0ms), Error);
        try {
          c.barrier(150ms);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::kTimeout);
          EXPECT_THAT(error.what(), AllOf(HasSubstr("barrier"), HasSubstr("waited 150 ms"),
                                          HasSubstr("rank 1 is missing: ")));
          ++named;
        }
      },
      std::chrono::minutes(10));  // longer than the test may take
  EXPECT_EQ(named, 1);
  on_ranks(
      2,
      [](Communicator& c) {
        std::vector<float> values(10, 1);
        if (c.rank() == 1) std::this_thread::sleep_for(600ms);
        c.all_reduce(std::span(values), Reduce::kSum, 60s);
        EXPECT_EQ(values[0], 2.0f);
      },
      200ms);
}

// Returns what two processes with these networks throw when they make a communicator. Both must
// throw.
std::vector<Error> refused(const std::vector<collectives::Network>& networks) {
  const auto bootstraps = collectives::in_memory_bootstrap({0, 1}, 20s);
  const auto device = engine::cpu_device();
  std::vector<Error> errors(2, Error(Code::kAborted, "not refused"));
  {
    std::vector<std::jthread> threads;
    for (const std::size_t rank : {0, 1})
      threads.emplace_back([&, rank] {
        try {
          const Communicator c(*bootstraps[rank],
                               device->ops(engine::DType::kFloat32, {.threads = 1}),
                               {.deadline = 20s}, networks[rank]);
        } catch (const Error& error) {
          errors[rank] = error;
        }
      });
  }
  return errors;
}

// If one process lacks an interface or ports, all processes are told, and none waits.
TEST(Communicator, AProcessThatCannotListenEndsAll) {
  const auto errors = refused({{.interface = "lo"}, {.interface = "eth77"}});
  EXPECT_THAT(errors[0].what(),
              AllOf(HasSubstr("process 1"), HasSubstr("no network interface 'eth77'")));
  EXPECT_THAT(errors[1].what(), HasSubstr("no network interface 'eth77'"));
}

TEST(Communicator, TheTransportOfMpiNeedsAJobOfMpi) {
  for (const Error& error : refused({{.transport = "mpi"}, {.transport = "mpi"}})) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("transport mpi needs a job that MPI started"));
  }
}

TEST(Communicator, ARankThatThrowsEndsTheOthersAtOnceWithItsText) {
  try {
    on_ranks(
        3,
        [](Communicator& c) {
          if (c.rank() == 1) throw std::runtime_error("a broken example");
          std::vector<float> values(10);
          c.all_reduce(std::span(values));
        },
        std::chrono::minutes(10));  // longer than the test may take
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "a broken example");
  }
}

TEST(Communicator, ASessionOnACommunicatorOfMpiNeedsAProgramThatRunsMpi) {
  try {
    strategies::Session s(strategies::MpiCommunicator{0});
    ADD_FAILURE() << "MPI does not run here";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("MPI"));
  }
}

TEST(Buckets, GradientsOfAnySizesAreSummedInTheirOrderOrAnother) {
  const std::vector<std::size_t> counts{5, 0, 1024, 1, 3000, 70000, 17};
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (const std::size_t bytes : {std::size_t(4), std::size_t(8192), std::size_t(1) << 22})
      on_ranks(ranks, [&](Communicator& c) {
        std::vector<std::vector<float>> own;
        std::vector<Gradient<float>> gradients;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          own.emplace_back(counts[i]);
          gradients.push_back({i % 2 == 0 ? own[i].data() : nullptr, counts[i]});
        }
        Buckets<float> buckets(c, gradients, {.operation = Reduce::kSum, .bytes = bytes});
        EXPECT_EQ(buckets.buckets() == 1, bytes == std::size_t(1) << 22);
        for (int round = 0; round < 4; ++round) {
          for (std::size_t k = 0; k < counts.size(); ++k) {
            // The order is that of backward; it is reversed once, and once on rank 1 alone.
            const std::size_t i =
                round == 2 || (round == 3 && c.rank() == 1) ? counts.size() - 1 - k : k;
            fill(buckets.gradient(i), c.rank(), round);
            buckets.ready(i);
          }
          buckets.wait();
          for (std::size_t i = 0; i < counts.size(); ++i)
            EXPECT_EQ(wrong<float>(buckets.gradient(i), ranks, Reduce::kSum, round), 0u) << i;
        }
      });
}

TEST(Buckets, WrongCallsAreErrors) {
  on_ranks(2, [](Communicator& c) {
    Buckets<float> buckets(c, {{nullptr, 5}, {nullptr, 2}});
    EXPECT_THROW(buckets.wait(), Error);
    EXPECT_THROW(buckets.ready(2), Error);
    buckets.ready(0);
    EXPECT_THROW(buckets.ready(0), Error);
    buckets.ready(1);
    buckets.wait();
    EXPECT_THROW(Buckets<float>(c, {}), Error);
  });
}

TEST(Buckets, ARankWhoseBackwardStopsIsNamedWithTheBucket) {
  std::string text;
  std::latch over{1};
  on_ranks(
      2,
      [&](Communicator& c) {
        Buckets<float> buckets(c, {{nullptr, 10}, {nullptr, 20}}, {.bytes = 4});
        buckets.ready(0);
        if (c.rank() == 1) return over.wait();
        buckets.ready(1);
        try {
          buckets.wait();
        } catch (const Error& error) {
          text = error.what();
        }
        try {
          c.barrier();  // fails at once, with the first cause
          ADD_FAILURE() << "a barrier after the end";
        } catch (const Error& error) {
          EXPECT_EQ(error.what(), text);
        }
        over.count_down();
      },
      300ms);
  EXPECT_THAT(text, AllOf(HasSubstr("bucket "), HasSubstr("rank 1 is missing")));
}

}  // namespace communicator_test
}  // namespace lockstep::test
