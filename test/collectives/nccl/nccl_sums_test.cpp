// SPDX-License-Identifier: MIT
// Flat collectives equal plain loops, and hierarchical collectives equal flat ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"
#include "test/collectives/nccl/nccl_job.h"

namespace lockstep::collectives::nccl {
namespace nccl_sums_test {

using engine::DType;
using Bytes = std::vector<std::byte>;

void put(Bytes& data, DType dtype, std::size_t i, double value) {
  const auto store = [&](auto number) {
    std::memcpy(data.data() + i * sizeof(number), &number, sizeof(number));
  };
  switch (dtype) {
    case DType::kFloat32:
      return store(float(value));
    case DType::kFloat64:
      return store(value);
    case DType::kInt32:
      return store(std::int32_t(value));
    case DType::kInt64:
      return store(std::int64_t(value));
    case DType::kFloat16:
      return store(engine::Half(float(value)));
    case DType::kBFloat16:
      return store(engine::BFloat16(float(value)));
  }
}

// Returns a number that every type holds exactly, as it does the sum of eight of them.
double number(int rank, std::size_t i) {
  return double((i * 7 + std::size_t(rank) * 5 + 3) % 17);
}

Bytes numbers(DType dtype, int rank, std::size_t count) {
  Bytes data(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) put(data, dtype, i, number(rank, i));
  return data;
}

Bytes sums(DType dtype, int ranks, std::size_t count) {
  Bytes data(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += number(rank, i);
    put(data, dtype, i, sum);
  }
  return data;
}

Bytes slice(const Bytes& data, std::size_t begin, std::size_t bytes) {
  return {data.begin() + std::ptrdiff_t(begin), data.begin() + std::ptrdiff_t(begin + bytes)};
}

class EachType : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, EachType, ::testing::ValuesIn(engine::kDTypes),
                         [](const auto& one) { return std::string(name(one.param)); });

TEST_P(EachType, SumsAreThePlainSumsOnEveryRank) {
  constexpr std::size_t kCount = 1003;
  const DType dtype = GetParam();
  for (int ranks = 1; ranks <= 8; ++ranks) {
    FakeNccl fake;
    run_well(fake, std::vector<int>(std::size_t(ranks), 0), {}, [&](const Rank& r) {
      Bytes data = numbers(dtype, r.rank, kCount);
      r.communicator.all_reduce(data.data(), kCount, dtype, r.stream);
      r.wait();
      EXPECT_EQ(data, sums(dtype, ranks, kCount)) << ranks << " ranks";
    });
  }
}

TEST_P(EachType, PartsAreScatteredGatheredAndTold) {
  constexpr std::size_t kPart = 37;
  const DType dtype = GetParam();
  const std::size_t bytes = kPart * size_of(dtype);
  for (int ranks = 1; ranks <= 8; ++ranks) {
    FakeNccl fake;
    fake.lag = 3;
    run_well(fake, std::vector<int>(std::size_t(ranks), 0), {}, [&](const Rank& r) {
      const std::size_t count = kPart * std::size_t(ranks), mine = std::size_t(r.rank) * bytes;
      const Bytes whole = sums(dtype, ranks, count);
      Bytes data = numbers(dtype, r.rank, count);
      r.communicator.reduce_scatter(data.data(), kPart, dtype, r.stream);
      r.wait();
      EXPECT_EQ(slice(data, mine, bytes), slice(whole, mine, bytes)) << ranks << " ranks";
      r.communicator.all_gather(data.data(), kPart, dtype, r.stream);
      r.wait();
      EXPECT_EQ(data, whole) << ranks << " ranks";
      const int root = ranks - 1;
      Bytes told = numbers(dtype, r.rank, count);
      r.communicator.broadcast(told.data(), count, dtype, root, r.stream);
      r.wait();
      EXPECT_EQ(told, numbers(dtype, root, count)) << ranks << " ranks";
    });
  }
}

const std::vector<std::vector<int>> kPlaces{
    {0},
    {0, 0, 0},
    {0, 1, 2},
    {0, 0, 1, 1},
    {0, 1, 0, 1},
    {0, 0, 0, 1},
    {0, 0, 1, 1, 1},
    {2, 2, 0, 0, 1, 1},
    {0, 0, 0, 1, 1, 1},
    {0, 0, 1, 1, 2, 2, 3},
    {0, 0, 1, 1, 2, 2, 3, 3},
    {0, 0, 0, 0, 1, 1, 1, 1},
    {0, 1, 1, 0, 2, 0, 2, 0},
};

class EachPlace : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Places, EachPlace, ::testing::ValuesIn(kPlaces), [](const auto& one) {
  std::string text = "hosts";
  for (const int host : one.param) text += std::to_string(host);
  return text;
});

constexpr std::size_t kCounts[] = {0, 1, 63, 64, 257, 1000, 1024, 4099};

TEST_P(EachPlace, SumsOfIntegersByHostsHaveTheBitsOfFlatOnes) {
  FakeNccl fake;
  fake.lag = 2;
  const int ranks = int(GetParam().size());
  run_well(fake, GetParam(), {.hierarchical = true}, [&](const Rank& r) {
    for (const std::size_t count : kCounts) {
      for (const DType dtype : {DType::kInt32, DType::kInt64}) {
        Bytes data = numbers(dtype, r.rank, count + 1);
        const Bytes behind = slice(data, count * size_of(dtype), size_of(dtype));
        r.communicator.all_reduce(data.data(), count, dtype, r.stream);
        r.wait();
        EXPECT_EQ(slice(data, 0, count * size_of(dtype)), sums(dtype, ranks, count)) << count;
        EXPECT_EQ(slice(data, count * size_of(dtype), size_of(dtype)), behind) << count;
      }
    }
  });
}

TEST_P(EachPlace, SumsOfFloatsByHostsAreFlatOnesButForRoundingAndTheSameOnAllRanks) {
  constexpr std::size_t kCount = 1000;
  FakeNccl fake;
  const auto value = [](int rank, std::size_t i) {
    return float(std::sin(double(i) * 1.7 + rank) * std::exp(double(i % 9)));
  };
  const int ranks = int(GetParam().size());
  std::vector<std::vector<float>> results(GetParam().size());
  run_well(fake, GetParam(), {.hierarchical = true}, [&](const Rank& r) {
    std::vector<float> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i) data[i] = value(r.rank, i);
    r.communicator.all_reduce(reinterpret_cast<std::byte*>(data.data()), kCount, DType::kFloat32,
                              r.stream);
    r.wait();
    results[std::size_t(r.rank)] = data;
  });
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results[0]);
  for (std::size_t i = 0; i < kCount; ++i) {
    double sum = 0, sizes = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sum += double(value(rank, i));
      sizes += std::abs(double(value(rank, i)));
    }
    EXPECT_NEAR(double(results[0][i]), sum, double(ranks) * 0x1p-24 * sizes) << i;
  }
}

TEST(HierarchicalPlaces, AreTwoCommunicatorsMoreForLeadersAndOneForOthers) {
  const auto made = [](const std::vector<int>& hosts) {
    FakeNccl fake;
    run_well(fake, hosts, {.hierarchical = true}, [](const Rank&) {});
    return fake.made();
  };
  EXPECT_EQ(made({0, 0, 0, 0}), 4) << "one host is flat";
  EXPECT_EQ(made({0, 1, 2}), 3) << "one rank a host is flat";
  EXPECT_EQ(made({0, 0, 1, 1}), 3 * 4);
  EXPECT_EQ(made({0, 0, 0, 1, 1}), 5 + 5 + 4) << "the third of host 0 leads nothing";
}

TEST(HierarchicalPlaces, OtherCollectivesAreFlat) {
  FakeNccl fake;
  run_well(fake, {0, 0, 1, 1}, {.hierarchical = true}, [](const Rank& r) {
    std::vector<std::int32_t> data{r.rank, r.rank + 1, r.rank + 2, r.rank + 3};
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    r.communicator.reduce_scatter(bytes, 1, DType::kInt32, r.stream);
    r.communicator.all_gather(bytes, 1, DType::kInt32, r.stream);
    r.wait();
    EXPECT_THAT(data, ::testing::ElementsAre(6, 10, 14, 18));
    r.communicator.broadcast(bytes, 1, DType::kInt32, 2, r.stream);
    r.wait();
    EXPECT_EQ(data[0], 6);
  });
  EXPECT_EQ(fake.queued(), 3 * 4);
}

}  // namespace nccl_sums_test
}  // namespace lockstep::collectives::nccl
