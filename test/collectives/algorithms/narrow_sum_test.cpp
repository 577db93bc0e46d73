// SPDX-License-Identifier: MIT
// Sums of 16-bit numbers: all ranks end with the same bits. If one reduction adds all ranks, the
// sum is rounded once. If partial sums go through memory or over a wire, they are rounded at each
// hop. The error then stays within the bound for that many roundings.
#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

#include "collectives/algorithms/registry.h"
#include "engine/base/random.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace narrow_sum_test {

using collectives::Algorithm;
using collectives::all_reduce_algorithms;
using engine::BFloat16;
using engine::Half;

// The relative error of one rounding.
template <class T>
constexpr double kUnit = std::is_same_v<T, Half> ? 0x1p-11 : 0x1p-8;

// Returns a random number of either sign, of a random scale from 2^-8 to 2^5.
template <class T>
T input(int rank, std::size_t i) {
  const auto bits = engine::random_bits(5, std::uint64_t(rank), i);
  return T(std::ldexp(float(engine::uniform(bits[0]) - 0.5), int(bits[1] % 14) - 7));
}

// Returns the most successive roundings of a number: one for direct, and at most n - 1 for n - 1
// sums in any order. A balanced tree has its depth, plus one for a rank beyond the 2^L that
// exchange.
int roundings(const Algorithm& algorithm, int ranks) {
  if (ranks == 1) return 0;
  if (algorithm.name == "direct" || algorithm.name == "one_shot") return 1;
  if (algorithm.name == "halving_doubling") return int(std::ceil(std::log2(ranks))) + 1;
  return ranks - 1;
}

template <class T>
void expect_within(Job& job, const Algorithm& algorithm, Range subject, bool mean) {
  const int n = job.ranks();
  const double u = kUnit<T>, of_float = 0x1p-24;
  for (std::size_t i = subject.begin; i < subject.end; ++i) {
    double sum = 0, sizes = 0;
    for (int rank = 0; rank < n; ++rank) {
      const double one = double(float(input<T>(rank, i)));
      sum += one, sizes += std::abs(one);
    }
    const double scale = mean ? 1.0 / n : 1;
    // Each rounding multiplies the magnitudes below it by at most 1 + u; the scale is rounded in
    // float32. Numbers too small for u have a fixed step: 2^-24 for Half.
    const double most =
        sizes * scale * (std::pow(1 + u + (n + 1) * of_float, roundings(algorithm, n)) - 1) +
        n * 0x1p-25;
    const T first = job.values<T>(0)[i];
    ASSERT_LE(std::abs(double(float(first)) - sum * scale), most)
        << algorithm.name << " of " << n << ", element " << i;
    for (int rank = 1; rank < n; ++rank)
      ASSERT_EQ(job.values<T>(rank)[i].bits, first.bits)
          << algorithm.name << " of " << n << ", rank " << rank << ", element " << i;
  }
}

class NarrowSums : public testing::TestWithParam<std::string> {
 protected:
  template <class T>
  void run(const Algorithm& algorithm, const std::vector<int>& host, bool mean) {
    constexpr Range kSubject{1024, 1024 + 9000};
    Request request;
    request.name = "sums";
    request.dtype = engine::dtype_of<T>();
    request.mean = mean;
    request.subject = kSubject;
    request.host = host;
    request.chunk_bytes = 4096;
    Job job({{algorithm.make(request), {}, false}}, kSubject.end + algorithm.scratch(request));
    for (int rank = 0; rank < job.ranks(); ++rank)
      for (std::size_t i = kSubject.begin; i < kSubject.end; ++i)
        job.values<T>(rank)[i] = input<T>(rank, i);
    job.execute({0});
    expect_within<T>(job, algorithm, kSubject, mean);
  }
};

TEST_P(NarrowSums, AreEqualOnAllRanksAndWithinTheirRoundings) {
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const int ranks : {1, 2, 3, 5, 8}) {
      const std::vector<int> host = hosts(GetParam(), ranks);
      if (!algorithm.refusal(host).empty()) continue;
      run<Half>(algorithm, host, false);
      run<BFloat16>(algorithm, host, true);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, NarrowSums, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return layout.param; });

// Sums 2048, 1 and 1 as Half, and calls body(exact, lost). 2048 + 1 is 2048 and 2048 + 1 + 1 is
// 2050, so a rounding in between loses the ones.
template <class Body>
void sums_of_2048_and_two_ones(const std::vector<int>& host, const Algorithm& algorithm,
                               Body body) {
  constexpr std::size_t kLength = 6 * engine::kBlock;
  Request request;
  request.name = "sums";
  request.dtype = DType::kFloat16;
  request.subject = {0, kLength};
  request.host = host;
  Job job({{algorithm.make(request), {}, false}}, kLength + algorithm.scratch(request));
  for (int rank = 0; rank < 3; ++rank)
    std::fill_n(job.values<Half>(rank), kLength, Half(rank == 0 ? 2048.0f : 1.0f));
  job.execute({0});
  std::size_t exact = 0, lost = 0;
  for (std::size_t i = 0; i < kLength; ++i) {
    exact += float(job.values<Half>(2)[i]) == 2050;
    lost += float(job.values<Half>(2)[i]) == 2048;
  }
  EXPECT_EQ(exact + lost, kLength);
  body(exact, lost);
}

TEST(NarrowSums, OneHostRoundsOnceAndARingAtEachHop) {
  const Algorithm& direct = collectives::find_algorithm("direct");
  const Algorithm& ring = collectives::find_algorithm("ring");
  sums_of_2048_and_two_ones({0, 0, 0}, direct, [](auto, auto lost) { EXPECT_EQ(lost, 0u); });
  // Each chunk begins at another rank. If it begins at rank 1, both ones come first.
  sums_of_2048_and_two_ones({0, 1, 2}, ring, [](auto exact, auto lost) {
    EXPECT_GT(exact, 0u);
    EXPECT_GT(lost, 0u);
  });
}

}  // namespace narrow_sum_test
}  // namespace lockstep::test
