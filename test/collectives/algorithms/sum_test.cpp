// SPDX-License-Identifier: MIT
// Executed sums equal serial sums exactly, for inputs whose sums are exact in every order. Other
// inputs show which order each algorithm guarantees.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace sum_test {

using collectives::Algorithm;
using collectives::all_reduce_algorithms;
using collectives::slice;

// Returns whole numbers whose sum over nine ranks fits in 8 bits; for products, 1 or 2 with either
// sign.
template <class T>
T input(ReduceOp op, int rank, std::size_t i) {
  const int number = int((i * 7 + std::size_t(rank) * 13) % 101);
  const int small = op == ReduceOp::kProduct
                        ? (number % 2 == 0 ? 1 : -1) * (number % 3 == 0 ? 2 : 1)
                        : number % 51 - 25;
  return T(float(small));
}

template <class T>
T serial(ReduceOp op, bool mean, int ranks, std::size_t i) {
  T result = input<T>(op, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const T next = input<T>(op, rank, i);
    if (op == ReduceOp::kSum) result = T(result + next);
    if (op == ReduceOp::kMin) result = std::min(result, next);
    if (op == ReduceOp::kMax) result = std::max(result, next);
    if (op == ReduceOp::kProduct) result = T(result * next);
  }
  if (!mean) return result;
  using Scale = std::conditional_t<sizeof(T) == 2, float, double>;
  return T(Scale(result) * Scale(1.0 / ranks));
}

// One all-reduce of a job that runs several at once, each in its own range and scratch.
struct Case {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool mean = false;
  Range subject = {};
};

std::vector<Case> cases_of_all_types() {
  std::vector<Case> cases;
  for (const DType dtype : engine::kDTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct})
      cases.push_back({dtype, op, false});
    if (!engine::is_integer(dtype)) cases.push_back({dtype, ReduceOp::kSum, true});
  }
  return cases;
}

template <class T>
void fill(Job& job, const Case& c) {
  for (int rank = 0; rank < job.ranks(); ++rank) {
    T* const values = job.values<T>(rank) + c.subject.begin;
    for (std::size_t i = 0; i < c.subject.size(); ++i) values[i] = input<T>(c.op, rank, i);
  }
}

template <class T>
void expect_sums(Job& job, const Case& c) {
  std::vector<T> wanted(c.subject.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = serial<T>(c.op, c.mean, job.ranks(), i);
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const T* const values = job.values<T>(rank) + c.subject.begin;
    const auto [right, wrong] = std::mismatch(wanted.begin(), wanted.end(), values);
    if (right != wanted.end())
      FAIL() << "rank " << rank << " element " << right - wanted.begin() << " of "
             << c.subject.size() << ", type " << engine::name(c.dtype) << ", op " << int(c.op)
             << (c.mean ? " mean" : "") << ": " << *wrong << ", not " << *right;
  }
}

template <class Body>
void with_type(DType dtype, Body body) {
  if (dtype == DType::kFloat32) body(float{});
  if (dtype == DType::kFloat64) body(double{});
  if (dtype == DType::kInt32) body(std::int32_t{});
  if (dtype == DType::kInt64) body(std::int64_t{});
  if (dtype == DType::kFloat16) body(engine::Half{});
  if (dtype == DType::kBFloat16) body(engine::BFloat16{});
}

void expect_sums(const Algorithm& algorithm, const std::vector<int>& host, std::size_t length,
                 std::vector<Case> cases, std::size_t chunk_bytes = 65536) {
  constexpr std::size_t kWide = sizeof(double);
  const std::size_t room = (length + 2 * engine::kBlock) / engine::kBlock * engine::kBlock;
  StepPlan step;
  std::size_t begin = 2048, scratch = 0;  // in elements of float64
  for (Case& c : cases) {
    const std::size_t narrow = kWide / engine::size_of(c.dtype);
    Request request;
    request.name = "sums";
    request.dtype = c.dtype;
    request.op = c.op;
    request.mean = c.mean;
    request.subject = c.subject = {begin * narrow, begin * narrow + length};
    request.host = host;
    request.rotation = 1;
    request.scratch = scratch * narrow;
    request.chunk_bytes = chunk_bytes;
    begin += room;
    scratch += (algorithm.scratch(request) + narrow - 1) / narrow;
    step.push_back({algorithm.make(request), {}, false});
  }
  std::vector<int> stages(step.size());
  for (std::size_t i = 0; i < stages.size(); ++i) stages[i] = int(i);
  Job job(std::move(step), std::max(begin, scratch));
  for (const Case& c : cases) with_type(c.dtype, [&](auto t) { fill<decltype(t)>(job, c); });
  job.execute(stages);
  for (const Case& c : cases) with_type(c.dtype, [&](auto t) { expect_sums<decltype(t)>(job, c); });
}

class Sums : public testing::TestWithParam<std::string> {};

// Cases that contain each type and each operation.
const std::vector<Case> kSomeCases{
    {DType::kFloat32, ReduceOp::kSum, true}, {DType::kFloat64, ReduceOp::kMin},
    {DType::kInt32, ReduceOp::kSum},         {DType::kInt64, ReduceOp::kProduct},
    {DType::kFloat16, ReduceOp::kSum, true}, {DType::kBFloat16, ReduceOp::kMax},
    {DType::kFloat16, ReduceOp::kProduct},   {DType::kBFloat16, ReduceOp::kSum}};

TEST_P(Sums, OfEveryTypeAndOperationEqualTheSerialResult) {
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const int ranks : {1, 2, 3, 5}) {
      const std::vector<int> host = hosts(GetParam(), ranks);
      if (!algorithm.refusal(host).empty()) continue;
      SCOPED_TRACE(std::string(algorithm.name) + " of " + std::to_string(ranks));
      expect_sums(algorithm, host, 1001, cases_of_all_types());
      if (HasFailure()) return;
    }
}

TEST_P(Sums, EqualTheSerialResult) {
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const std::vector<int> host = hosts(GetParam(), ranks);
      if (!algorithm.refusal(host).empty()) continue;
      SCOPED_TRACE(std::string(algorithm.name) + " of " + std::to_string(ranks));
      for (const std::size_t length : {0, 1, 2, 7, 8, 16, 1001, 3073, 4095})
        expect_sums(algorithm, host, length, kSomeCases);
      if (HasFailure()) return;
    }
}

// Sums are right if small chunks and several plans at once give all lanes several segments.
TEST_P(Sums, InManySegmentsEqualTheSerialResult) {
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const int ranks : {2, 3, 5, 6}) {
      const std::vector<int> host = hosts(GetParam(), ranks);
      if (!algorithm.refusal(host).empty()) continue;
      SCOPED_TRACE(std::string(algorithm.name) + " of " + std::to_string(ranks));
      expect_sums(algorithm, host, 50021, {{}, {DType::kInt32}, {DType::kBFloat16}}, 4096);
      if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Sums, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return layout.param; });

// Long sums are exact on one host and on several, for each type of 32 and 64 bits.
TEST(Sums, OfAMillionElements) {
  struct {
    const char* layout;
    int ranks;
    DType dtype;
  } const jobs[] = {{"one", 2, DType::kInt32},     {"one", 3, DType::kFloat64},
                    {"one", 5, DType::kFloat32},   {"one", 9, DType::kInt64},
                    {"apart", 3, DType::kFloat64}, {"apart", 4, DType::kInt32},
                    {"unequal", 2, DType::kInt64}, {"unequal", 7, DType::kFloat32}};
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const auto& [layout, ranks, dtype] : jobs) {
      const std::vector<int> host = hosts(layout, ranks);
      if (!algorithm.refusal(host).empty()) continue;
      SCOPED_TRACE(fmt::format("{} {} {}", algorithm.name, layout, ranks));
      expect_sums(algorithm, host, 1045991, {{dtype}}, std::size_t(256) << 10);
      if (HasFailure()) return;
    }
}

// Inexact sums show the order. All ranks end with the same bits in any order. If an algorithm
// guarantees the order of ranks, the bits are those of a balanced tree.
class Bits : public testing::TestWithParam<std::string> {};

TEST_P(Bits, AreEqualOnAllRanksAndKeepThePromisedOrder) {
  const auto value = [](int rank, std::size_t i) {
    return float(1.0 / double(i + 3 + std::size_t(rank) * 17));
  };
  const std::function<float(int, int, std::size_t)> tree = [&](int first, int count,
                                                               std::size_t i) {
    if (count == 1) return value(first, i);
    const int half = (count + 1) / 2;
    return tree(first, half, i) + tree(first + half, count - half, i);
  };
  constexpr Range kFew{0, 3000}, kMany{4096, 4096 + 21000};
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13}) {
      const std::vector<int> host = hosts(GetParam(), ranks);
      if (!algorithm.refusal(host).empty()) continue;
      StepPlan step;
      std::size_t scratch = 0;
      for (const Range subject : {kFew, kMany}) {
        Request request;
        request.subject = subject;
        request.host = host;
        request.rotation = ranks / 2;
        request.scratch = scratch;
        request.chunk_bytes = 8192;
        scratch += algorithm.scratch(request);
        step.push_back({algorithm.make(request), {}, false});
      }
      Job job(std::move(step), kMany.end + scratch);
      for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < kMany.end; ++i) job.values<float>(rank)[i] = value(rank, i);
      job.execute({0, 1});
      for (const Range subject : {kFew, kMany})
        for (std::size_t i = subject.begin; i < subject.end; ++i) {
          const float first = job.values<float>(0)[i];
          for (int rank = 1; rank < ranks; ++rank)
            ASSERT_EQ(job.values<float>(rank)[i], first)
                << algorithm.name << " of " << ranks << ", rank " << rank << ", element " << i;
          if (!algorithm.keeps_rank_order) continue;
          ASSERT_EQ(first, tree(0, ranks, i))
              << algorithm.name << " of " << ranks << ", element " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Bits, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return layout.param; });

// A gather hands out the owner's numbers, and a broadcast those of the root.
TEST(Gathers, HandOutSlicesAndBroadcastsTheRoot) {
  constexpr std::size_t kLength = 5000;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Request request;
    request.subject = {0, kLength};
    request.host = hosts("one", ranks);
    request.rotation = 2;
    Request second = request;
    second.subject = {kLength, 2 * kLength};
    second.root = ranks / 2;
    Job job({{direct_all_gather(request), {}, false}, {direct_broadcast(second), {}, false}},
            2 * kLength);
    for (int rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < 2 * kLength; ++i)
        job.values<float>(rank)[i] = input<float>(ReduceOp::kSum, rank, i);
    job.execute({0, 1});
    for (int owner = 0; owner < ranks; ++owner) {
      const Range mine = slice(request.subject, (owner + 2) % ranks, ranks);
      for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t i = mine.begin; i < mine.end; ++i)
          ASSERT_EQ(job.values<float>(rank)[i], input<float>(ReduceOp::kSum, owner, i))
              << ranks << " " << i;
    }
    for (int rank = 0; rank < ranks; ++rank)
      for (std::size_t i = kLength; i < 2 * kLength; ++i)
        ASSERT_EQ(job.values<float>(rank)[i], input<float>(ReduceOp::kSum, ranks / 2, i))
            << ranks << " " << i;
  }
}

}  // namespace sum_test
}  // namespace lockstep::test
