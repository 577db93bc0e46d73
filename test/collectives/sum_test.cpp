// SPDX-License-Identifier: MIT
// Executed sums equal serial ones, exactly, for inputs whose sums are exact in every order.
#include <gtest/gtest.h>

#include "test/collectives/job.h"

namespace lockstep::test {
namespace {

template <class T>
T input(int rank, std::size_t i) {
  return T(std::int64_t((i * 7 + std::size_t(rank) * 13) % 101) - 50);
}

template <class T>
T serial(ReduceOp op, bool mean, int ranks, std::size_t i) {
  T result = input<T>(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const T next = input<T>(rank, i);
    if (op == ReduceOp::kSum) result = T(result + next);
    if (op == ReduceOp::kMin) result = std::min(result, next);
    if (op == ReduceOp::kMax) result = std::max(result, next);
  }
  return mean ? T(double(result) * (1.0 / ranks)) : result;
}

enum class Algorithm { kDirect, kRing };

template <class T>
void sums(Algorithm algorithm, DType dtype, const std::vector<int>& host, std::size_t length) {
  constexpr std::size_t kBegin = 2048;
  struct Case {
    ReduceOp op;
    bool mean;
  };
  for (const Case c : {Case{ReduceOp::kSum, false}, Case{ReduceOp::kMin, false},
                       Case{ReduceOp::kMax, false}, Case{ReduceOp::kSum, true}}) {
    if (c.mean && !std::is_floating_point_v<T>) continue;
    if (length > 100000 && (c.mean || c.op != ReduceOp::kSum)) continue;  // time
    Request request;
    request.name = "sums";
    request.dtype = dtype;
    request.op = c.op;
    request.mean = c.mean;
    request.subject = {kBegin, kBegin + length};
    request.host = host;
    request.turn = 1;
    const Plan plan =
        algorithm == Algorithm::kDirect ? direct_all_reduce(request) : ring_all_reduce(request);
    Job job({{plan, {}, false}}, kBegin + length + ring_scratch(request));
    for (int rank = 0; rank < job.ranks(); ++rank)
      for (std::size_t i = 0; i < length; ++i) job.values<T>(rank)[kBegin + i] = input<T>(rank, i);
    job.execute({0});
    for (int rank = 0; rank < job.ranks(); ++rank)
      for (std::size_t i = 0; i < length; ++i)
        ASSERT_EQ(job.values<T>(rank)[kBegin + i], serial<T>(c.op, c.mean, job.ranks(), i))
            << "rank " << rank << " element " << i << " of " << length << ", op " << int(c.op)
            << (c.mean ? " mean" : "");
  }
}

void sums_of_all_types(Algorithm algorithm, const std::vector<int>& host, std::size_t length) {
  sums<float>(algorithm, DType::kFloat32, host, length);
  sums<double>(algorithm, DType::kFloat64, host, length);
  sums<std::int32_t>(algorithm, DType::kInt32, host, length);
  sums<std::int64_t>(algorithm, DType::kInt64, host, length);
}

constexpr std::size_t kLengths[] = {0, 1, 2, 7, 8, 16, 1001, 4095};

TEST(Sums, DirectEqualsTheSerialResult) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const std::size_t length : kLengths)
      sums_of_all_types(Algorithm::kDirect, hosts("one", ranks), length);
}

class RingSums : public testing::TestWithParam<std::string> {};

TEST_P(RingSums, EqualTheSerialResult) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const std::size_t length : kLengths)
      sums_of_all_types(Algorithm::kRing, hosts(GetParam(), ranks), length);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RingSums, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return layout.param; });

TEST(Sums, OfAMillionElements) {
  for (const int ranks : {2, 3}) {
    sums<float>(Algorithm::kDirect, DType::kFloat32, hosts("one", ranks), 1045991);
    sums<float>(Algorithm::kRing, DType::kFloat32, hosts("one", ranks), 1045991);
    sums<float>(Algorithm::kRing, DType::kFloat32, hosts("apart", ranks), 1045991);
  }
}

// Sums that are not exact show the order: direct adds a balanced tree in rank order, on all slices.
TEST(Sums, DirectKeepsTheBitsOfABalancedTree) {
  constexpr std::size_t kLength = 9000;
  const auto value = [](int rank, std::size_t i) {
    return float(1.0 / double(i + 3 + std::size_t(rank) * 17));
  };
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Request request;
    request.subject = {0, kLength};
    request.host = hosts("one", ranks);
    Job job({{direct_all_reduce(request), {}, false}}, kLength);
    for (int rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < kLength; ++i) job.values<float>(rank)[i] = value(rank, i);
    job.execute({0});
    const std::function<float(int, int, std::size_t)> tree = [&](int first, int count,
                                                                 std::size_t i) {
      if (count == 1) return value(first, i);
      const int half = (count + 1) / 2;
      return tree(first, half, i) + tree(first + half, count - half, i);
    };
    for (int rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < kLength; ++i)
        ASSERT_EQ(job.values<float>(rank)[i], tree(0, ranks, i)) << ranks << " " << i;
  }
}

}  // namespace
}  // namespace lockstep::test
