// SPDX-License-Identifier: MIT
// The lower layer reduces every element type with every operation, on one host and between hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <type_traits>

#include "collectives/communicator/buckets.h"
#include "collectives/communicator/communicator.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "strategies/session/ranks.h"

namespace lockstep::test {
namespace communicator_types_test {

using namespace std::chrono_literals;
using collectives::Buckets;
using collectives::Communicator;
using collectives::Reduce;
using engine::BFloat16;
using engine::Error;
using engine::Half;
using testing::AllOf;
using testing::HasSubstr;

void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  strategies::Session session(0, nullptr);
  strategies::run_ranks(session, ranks, body, {20s});
}

// Runs `body` on two hosts, both of which are this machine. Messages go through sockets, with
// partial sums in the elements' type.
void on_two_hosts(const std::function<void(Communicator&)>& body) {
  const auto bootstraps = collectives::in_memory_bootstrap({0, 0, 1}, 20s);
  const auto device = engine::cpu_device();
  std::vector<std::jthread> threads;
  for (const auto& bootstrap : bootstraps)
    threads.emplace_back([&, mine = bootstrap.get()] {
      Communicator c(*mine, device->ops(engine::DType::kFloat32, {.threads = 1}),
                     {.deadline = 20s});
      body(c);
      c.barrier();
    });
}

// Returns whole numbers whose sum over four ranks has 8 bits; for products, 1 or 2 with either
// sign.
template <class T>
T input(Reduce operation, int rank, std::size_t i) {
  const int number = int((i * 7 + std::size_t(rank) * 13) % 101);
  if (operation != Reduce::kProduct) return T(float(number % 61 - 30));
  return T(float((number % 2 == 0 ? 1 : -1) * (number % 3 == 0 ? 2 : 1)));
}

template <class T>
T result(Reduce operation, int ranks, std::size_t i) {
  float all = float(input<T>(operation, 0, i));
  for (int rank = 1; rank < ranks; ++rank) {
    const float one = float(input<T>(operation, rank, i));
    all = operation == Reduce::kMin       ? std::min(all, one)
          : operation == Reduce::kMax     ? std::max(all, one)
          : operation == Reduce::kProduct ? all * one
                                          : all + one;
  }
  if (operation != Reduce::kMean) return T(all);
  using Scale = std::conditional_t<sizeof(T) == 2, float, double>;
  return T(Scale(all) * Scale(1.0 / ranks));
}

template <class T>
void fill(std::span<T> values, Reduce operation, int rank) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = input<T>(operation, rank, i);
}
template <class T>
std::size_t wrong(std::span<const T> values, Reduce operation, int ranks) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    count += values[i] != result<T>(operation, ranks, i);
  return count;
}

template <class T>
void every_operation_is_exact(Communicator& c) {
  const std::span<T> allocated = c.allocate<T>(2000);
  for (const Reduce operation :
       {Reduce::kSum, Reduce::kMean, Reduce::kMin, Reduce::kMax, Reduce::kProduct}) {
    if (operation == Reduce::kMean && std::is_integral_v<T>) continue;
    std::vector<T> none, few(1025), many(270001);
    for (const std::span<T> values :
         {std::span(none), std::span(few), std::span(many), allocated, allocated.first(77)}) {
      fill(values, operation, c.rank());
      c.all_reduce(values, operation);
      EXPECT_EQ(wrong<T>(values, operation, c.size()), 0u)
          << engine::name(engine::dtype_of<T>()) << ", operation " << int(operation) << ", "
          << values.size() << " elements";
    }
  }
}

void every_type_is_exact(Communicator& c) {
  every_operation_is_exact<float>(c);
  every_operation_is_exact<double>(c);
  every_operation_is_exact<std::int32_t>(c);
  every_operation_is_exact<std::int64_t>(c);
  every_operation_is_exact<Half>(c);
  every_operation_is_exact<BFloat16>(c);
}

TEST(Communicator, EveryTypeAndOperationIsExactOnOneHost) {
  for (const int ranks : {1, 3}) on_ranks(ranks, every_type_is_exact);
}

TEST(Communicator, EveryTypeAndOperationIsExactBetweenHosts) {
  on_two_hosts(every_type_is_exact);
}

template <class T>
void buckets_are_exact(Communicator& c) {
  for (const Reduce operation : {Reduce::kMean, Reduce::kMax}) {
    std::vector<T> own(3000);
    Buckets<T> buckets(c, {{own.data(), own.size()}, {nullptr, 70}},
                       {.operation = operation, .bytes = 4096});
    for (const std::size_t i : {0u, 1u}) {
      fill(buckets.gradient(i), operation, c.rank());
      buckets.ready(i);
    }
    buckets.wait();
    for (const std::size_t i : {0u, 1u})
      EXPECT_EQ(wrong<T>(buckets.gradient(i), operation, c.size()), 0u);
  }
}

// Checks that memory that was not allocated for T is summed like any other.
template <class T>
void other_type_is_exact(Communicator& c, void* memory, std::size_t count) {
  const std::span<T> values(static_cast<T*>(memory), count);
  for (const Reduce operation : {Reduce::kSum, Reduce::kMean}) {
    if (operation == Reduce::kMean && std::is_integral_v<T>) continue;
    fill(values, operation, c.rank());
    c.all_reduce(values, operation);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(values[i], result<T>(operation, c.size(), i)) << i << " of " << count;
  }
}

TEST(Communicator, AllocatedMemoryMayBeReadAsElementsOfAnotherType) {
  on_ranks(4, [](Communicator& c) {
    other_type_is_exact<std::int32_t>(c, c.allocate<float>(3000).data(), 3000);
    other_type_is_exact<float>(c, c.allocate<std::int32_t>(3000).data(), 3000);
    other_type_is_exact<Half>(c, c.allocate<BFloat16>(3000).data(), 3000);
    other_type_is_exact<double>(c, c.allocate<std::int64_t>(3000).data(), 3000);
  });
}

TEST(Buckets, Of16BitsAreExact) {
  const auto both = [](Communicator& c) {
    buckets_are_exact<Half>(c);
    buckets_are_exact<BFloat16>(c);
  };
  on_ranks(2, both);
  on_two_hosts(both);
}

// A broadcast carries all 65,536 values. A NaN stays a NaN and becomes quiet.
TEST(Communicator, ABroadcastCarriesEveryBitOf16) {
  const auto every_number = [](Communicator& c) {
    std::vector<Half> values(65536);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i].bits = std::uint16_t(c.rank() == 1 ? i : 99);
    c.broadcast(std::span(values), 1);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i].bits, (i & 0x7fff) > 0x7c00 ? i | 0x200 : i);
  };
  on_ranks(3, every_number);
  on_two_hosts(every_number);
}

// Returns what each of two ranks is told. The communicator must stay usable.
std::vector<std::string> told(const std::function<void(Communicator&)>& body) {
  std::vector<std::string> texts(2);
  on_ranks(2, [&](Communicator& c) {
    try {
      body(c);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid) << error.what();
      texts[std::size_t(c.rank())] = error.what();
    }
    std::vector<Half> one{Half(1.0f)};
    c.all_reduce(std::span(one));
    EXPECT_EQ(one[0], 2.0f);
  });
  return texts;
}

TEST(Communicator, TheMeanOfIntegersIsRefusedOnAllRanks) {
  const auto texts = told([](Communicator& c) {
    std::vector<std::int32_t> values(4, 1);
    c.all_reduce(std::span(values), Reduce::kMean);
  });
  for (const std::string& text : texts)
    EXPECT_EQ(text, "the mean of int32 is no int32; ask for the sum");
}

TEST(Communicator, TypesAndOperationsThatDifferAreAnErrorOnAllRanks) {
  const auto operations = told([](Communicator& c) {
    std::vector<Half> values(4);
    c.all_reduce(std::span(values), c.rank() == 0 ? Reduce::kProduct : Reduce::kMin);
  });
  for (const std::string& text : operations)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 for all_reduce of 4 float16 (product)"),
                            HasSubstr("rank 1 for all_reduce of 4 float16 (min)")));
  const auto types = told([](Communicator& c) {
    std::vector<Half> halves(4);
    std::vector<BFloat16> others(4);
    c.rank() == 0 ? c.all_reduce(std::span(halves)) : c.all_reduce(std::span(others));
  });
  for (const std::string& text : types)
    EXPECT_THAT(text, AllOf(HasSubstr("4 float16 (sum)"), HasSubstr("4 bfloat16 (sum)")));
}

}  // namespace communicator_types_test
}  // namespace lockstep::test
