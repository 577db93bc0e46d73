// SPDX-License-Identifier: MIT
#include "collectives/run/host_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/reference/reference_device.h"

namespace lockstep::collectives {
namespace host_sum_test {

using engine::DType;

TEST(HostSum, HasTheBitsOfADevicesKernel) {
  const auto device = engine::reference_device();
  const auto ops = device->ops(DType::kFloat64, {});
  constexpr std::size_t kCount = 37;
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    std::vector<std::vector<double>> numbers(ranks, std::vector<double>(kCount));
    std::vector<std::vector<double>> sums(2, std::vector<double>(kCount)), wanted = sums;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to, to_wanted;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < kCount; ++i)
        numbers[rank][i] = std::sin(double(rank * kCount + i)) * std::pow(10, double(i % 17));
      from.push_back(reinterpret_cast<const std::byte*>(numbers[rank].data()));
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      to.push_back(reinterpret_cast<std::byte*>(sums[i].data()));
      to_wanted.push_back(reinterpret_cast<std::byte*>(wanted[i].data()));
    }
    engine::ReduceArguments arguments;
    arguments.dtype = DType::kFloat64;
    arguments.from = from;
    arguments.count = kCount;
    arguments.to = to_wanted;
    ops->reduce(arguments);
    arguments.to = to;
    sum_on_host(arguments);
    EXPECT_EQ(sums, wanted) << ranks << " ranks";
  }
}

TEST(HostSum, MayBeWrittenOverASource) {
  std::vector<double> mine{1, 2}, other{10, 20};
  const std::vector<const std::byte*> from{reinterpret_cast<const std::byte*>(mine.data()),
                                           reinterpret_cast<const std::byte*>(other.data())};
  const std::vector<std::byte*> to{reinterpret_cast<std::byte*>(mine.data()),
                                   reinterpret_cast<std::byte*>(other.data())};
  engine::ReduceArguments arguments;
  arguments.dtype = DType::kFloat64;
  arguments.from = from;
  arguments.to = to;
  arguments.count = 2;
  sum_on_host(arguments);
  EXPECT_EQ(mine, (std::vector<double>{11, 22}));
  EXPECT_EQ(other, mine);
}

}  // namespace host_sum_test
}  // namespace lockstep::collectives
