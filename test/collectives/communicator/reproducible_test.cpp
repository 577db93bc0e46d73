// SPDX-License-Identifier: MIT
// Reproducible sums of the lower layer have the same bits for every algorithm, every layout and
// every order of the ranks. They are the exact sum rounded once if the numbers of a block are as
// close to each other as the guarantee demands.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "collectives/algorithms/registry.h"
#include "collectives/communicator/buckets.h"
#include "collectives/communicator/communicator.h"
#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/cpu/cpu_device.h"

namespace lockstep::test {
namespace reproducible_test {

using namespace std::chrono_literals;
using collectives::Communicator;
using collectives::CommunicatorOptions;
using collectives::Reduce;
using engine::BFloat16;
using engine::Half;
using testing::HasSubstr;
__extension__ using Wide = __int128;
__extension__ using Size = unsigned __int128;

constexpr std::size_t kLengths[] = {0, 1, 7, 16, 1001, 4095};
constexpr std::size_t kLongest = 4095, kMeans = 1001;  // elements; means have one length
constexpr int kRange = 20;                             // range of a block in binary digits

// The digits of a type, and the exponents of its smallest number and of the bound above its
// largest.
template <class T>
struct Format;
template <>
struct Format<float> {
  static constexpr int kDigits = 24, kLeast = -149, kMost = 128;
};
template <>
struct Format<double> {
  static constexpr int kDigits = 53, kLeast = -1074, kMost = 1024;
};
template <>
struct Format<Half> {
  static constexpr int kDigits = 11, kLeast = -24, kMost = 16;
};
template <>
struct Format<BFloat16> {
  static constexpr int kDigits = 8, kLeast = -133, kMost = 128;
};

template <class T>
T number(double value) {
  return T(std::conditional_t<sizeof(T) == 2, float, double>(value));
}

// Returns sum x 2^exponent, rounded to nearest, ties to even.
template <class T>
T rounded(Wide sum, int exponent) {
  using F = Format<T>;
  const bool negative = sum < 0;
  auto size = Size(negative ? -sum : sum);
  int digits = 0;
  while (digits < 128 && (size >> digits) != 0) ++digits;
  const int cut = std::max({digits - F::kDigits, F::kLeast - exponent, 0});
  if (cut > 0) {
    const auto half = Size(1) << (cut - 1);
    const auto rest = size & (2 * half - 1);
    size >>= cut;
    if (rest > half || (rest == half && size % 2 == 1)) ++size;
  }
  const double value = std::ldexp(double(std::uint64_t(size)), exponent + cut);
  const double most = std::ldexp(1.0, F::kMost - 1);
  const double finite = value / 2 >= most ? std::numeric_limits<double>::infinity() : value;
  return number<T>(negative ? -finite : finite);
}

// Selects the kind of numbers. `kMany` covers all exponents, so its sums are not the exact sums
// rounded once.
enum class Kind { kOrdinary, kSmallest, kLargest, kUnusual, kMany };
constexpr Kind kKinds[] = {Kind::kOrdinary, Kind::kSmallest, Kind::kLargest, Kind::kUnusual,
                           Kind::kMany};

// Represents m x 2^(base + shift).
template <class T>
struct Element {
  std::int64_t m;
  int base, shift;
  double value() const { return std::ldexp(double(m), base + shift); }
};

template <class T>
Element<T> element(Kind kind, int rank, std::size_t i) {
  using F = Format<T>;
  const auto random = engine::random_bits(7, std::uint64_t(kind) * 100 + std::uint64_t(rank), i);
  const std::uint64_t word = (std::uint64_t(random[0]) << 32) | random[1];
  Element<T> e;
  e.m = std::int64_t(word >> (64 - F::kDigits)) * (random[2] % 2 == 0 ? 1 : -1);
  const int room = F::kMost - F::kDigits - F::kLeast;
  const int range = kind == Kind::kMany ? room : kRange;
  e.base = kind == Kind::kSmallest || kind == Kind::kMany ? F::kLeast
           : kind == Kind::kLargest                       ? F::kMost - F::kDigits - kRange
                                                          : -F::kDigits;
  if (sizeof(T) == 2 && kind != Kind::kLargest) e.base = std::max(e.base, F::kLeast);
  if (std::is_same_v<T, Half> && kind == Kind::kOrdinary) e.base = -22;
  e.shift = int(random[3] % std::uint32_t(range + 1));
  return e;
}

// Returns an input. Of kind kUnusual, one or two ranks have no finite number at every fifth
// element.
template <class T>
T input(Kind kind, int ranks, int rank, std::size_t i) {
  const float infinity = std::numeric_limits<float>::infinity();
  if (kind == Kind::kUnusual && i % 5 == 3) {
    const int one = int(i) % ranks, other = int(i / 5) % ranks;
    if (rank == one && i % 3 != 0) return T(i % 2 == 0 ? infinity : -infinity);
    if (rank == other && i % 3 != 1) return i % 4 == 0 ? T(std::nanf("77")) : T(infinity);
  }
  return number<T>(element<T>(kind, rank, i).value());
}

// Returns the result for the inputs of all ranks. The header defines the mean.
template <class T>
T wanted(Kind kind, int ranks, Reduce operation, std::size_t i) {
  Wide sum = 0;
  float unusual = 0;  // sum of the numbers that are not finite
  for (int rank = 0; rank < ranks; ++rank) {
    const T x = input<T>(kind, ranks, rank, i);
    const auto e = element<T>(kind, rank, i);
    if (x - x != 0) {
      unusual += float(x);
    } else {
      sum += Wide(e.m) << e.shift;
    }
  }
  const int base = element<T>(kind, 0, i).base;
  if (std::isnan(unusual)) return T(std::numeric_limits<float>::quiet_NaN());
  if (unusual != 0) return T(unusual);
  if (sum == 0) return T{};
  if (operation == Reduce::kSum) return rounded<T>(sum, base);
  const double scale = 1.0 / ranks;
  if constexpr (sizeof(T) == 2) return T(rounded<float>(sum, base) * float(scale));
  if constexpr (sizeof(T) > 2) return T(double(rounded<T>(sum, base)) * scale);
}

void together(const std::vector<int>& host, CommunicatorOptions options,
              const std::function<void(Communicator&)>& body) {
  options.deadline = 60s;
  const auto bootstraps = collectives::in_memory_bootstrap(host, 60s);
  const auto device = engine::cpu_device();
  std::vector<std::jthread> threads;
  for (const auto& bootstrap : bootstraps)
    threads.emplace_back([&, mine = bootstrap.get()] {
      Communicator c(*mine, device->ops(engine::DType::kFloat32, {.threads = 1}), options);
      body(c);
      c.barrier();
    });
}

// Returns the layouts: one host, two unequal hosts, and for 3 or 4 ranks one host per rank.
std::vector<std::vector<int>> layouts(int ranks) {
  std::vector<std::vector<int>> all{std::vector<int>(std::size_t(ranks), 0)};
  if (ranks > 1) {
    all.push_back(all[0]);
    for (int rank = (ranks + 2) / 2; rank < ranks; ++rank) all[1][std::size_t(rank)] = 1;
    if (all[1] == all[0]) all[1].back() = 1;
  }
  if (ranks == 3 || ranks == 4) {
    all.emplace_back(std::size_t(ranks));
    std::iota(all.back().begin(), all.back().end(), 0);
  }
  return all;
}

std::vector<std::vector<int>> orders(int ranks, std::size_t length) {
  std::vector<int> order(std::size_t(ranks), 0);
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> all{order};
  const bool every = ranks <= 4 && length == 16;
  while (every && std::next_permutation(order.begin(), order.end())) all.push_back(order);
  if (!every && length >= 16) all.emplace_back(all[0].rbegin(), all[0].rend());
  return all;
}

// Keeps the first result for each set of numbers; all other results must be the same. Thread-safe.
class Found {
 public:
  template <class T>
  bool same(const std::string& what, std::span<const T> values) {
    const std::string bits(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    std::scoped_lock lock(mutex_);
    return bits == found_.try_emplace(what, bits).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> found_;
};

template <class T>
class Expected {
 public:
  explicit Expected(int ranks) {
    for (const Kind kind : kKinds) {
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<T>& given = inputs_[kind].emplace_back();
        for (std::size_t i = 0; i < kLongest; ++i) given.push_back(input<T>(kind, ranks, rank, i));
      }
      for (const Reduce operation : {Reduce::kSum, Reduce::kMean}) {
        const std::size_t length = operation == Reduce::kSum ? kLongest : kMeans;
        for (std::size_t i = 0; kind != Kind::kMany && i < length; ++i)
          values_[{kind, operation}].push_back(wanted<T>(kind, ranks, operation, i));
      }
    }
  }

  // Checks all sums and means of this type on this communicator.
  void check(Communicator& c, const std::string& where, Found& found) const {
    for (const Kind kind : kKinds)
      for (const std::size_t length : kLengths)
        for (const Reduce operation : {Reduce::kSum, Reduce::kMean})
          for (const std::vector<int>& order : orders(c.size(), length)) {
            if (operation == Reduce::kMean && length != kMeans) continue;
            if (kind != Kind::kOrdinary && kind != Kind::kMany && length % 16 < 9) continue;
            const int as = order[std::size_t(c.rank())];
            const std::vector<T>& given = inputs_.at(kind)[std::size_t(as)];
            std::vector<T> values(given.begin(), given.begin() + std::ptrdiff_t(length));
            c.all_reduce(std::span(values), operation);
            const std::string what =
                fmt::format("{} ranks, {}, kind {}, operation {}, {} elements", c.size(),
                            engine::name(engine::dtype_of<T>()), int(kind), int(operation), length);
            ASSERT_TRUE(found.same(what, std::span<const T>(values)))
                << what << ": other bits " << where;
            if (kind == Kind::kMany) continue;
            const std::vector<T>& right = values_.at({kind, operation});
            if (length == 0 || std::memcmp(values.data(), right.data(), length * sizeof(T)) == 0)
              continue;
            for (std::size_t i = 0; i < length; ++i)
              ASSERT_EQ(std::memcmp(&values[i], &right[i], sizeof(T)), 0)
                  << what << " " << where << ": element " << i << " is " << double(values[i])
                  << ", not " << double(right[i]);
          }
  }

 private:
  std::map<Kind, std::vector<std::vector<T>>> inputs_;  // one vector per rank
  std::map<std::pair<Kind, Reduce>, std::vector<T>> values_;
};

class Reproducible : public testing::TestWithParam<int> {};

TEST_P(Reproducible, SumsHaveTheSameBitsByEveryAlgorithmOnEveryLayoutInEveryOrder) {
  const int ranks = GetParam();
  const Expected<float> floats(ranks);
  const Expected<double> doubles(ranks);
  const Expected<Half> halves(ranks);
  const Expected<BFloat16> others(ranks);
  Found found;
  const auto all = layouts(ranks);
  for (const std::vector<int>& host : all)
    for (const auto& algorithm : collectives::all_reduce_algorithms()) {
      if (!algorithm.refusal(host).empty()) continue;
      // Many ranks take long on few processors, so each algorithm runs on one layout.
      if (ranks > 5 && &host == &all[0] && algorithm.refusal(all[1]).empty()) continue;
      CommunicatorOptions options;
      options.reproducible = true;
      options.algorithm = algorithm.name;
      together(host, options, [&](Communicator& c) {
        const std::string where =
            fmt::format("by {} on hosts {}", algorithm.name, fmt::join(host, " "));
        floats.check(c, where, found);
        doubles.check(c, where, found);
        halves.check(c, where, found);
        others.check(c, where, found);
      });
      if (HasFatalFailure()) return;
    }
}

// These numbers of ranks cover each size that an algorithm distinguishes. More than eight ranks
// need one more digit.
INSTANTIATE_TEST_SUITE_P(Ranks, Reproducible, testing::Values(1, 2, 3, 4, 5, 9));

// Sums 1, half a step of it, and a small number that decides which of two neighbors is nearest. A
// rounding in between would lose the small number, and the even neighbor would result.
template <class T>
void rounds_once(Communicator& c, int small) {
  const double half = std::ldexp(1.0, -Format<T>::kDigits);
  const double of_rank[] = {1, half, std::ldexp(1.0, small)};
  for (const double sign : {1.0, -1.0}) {
    std::vector<T> values(3, number<T>(sign * of_rank[c.rank()]));
    values[1] = number<T>(sign * of_rank[c.rank() % 2]);  // the sum 2 + half rounds to 2
    values[2] = number<T>(c.rank() == 2 ? -sign * of_rank[2] : sign * of_rank[c.rank()]);
    c.all_reduce(std::span(values));
    EXPECT_EQ(double(values[0]), sign * (1 + 2 * half)) << engine::name(engine::dtype_of<T>());
    EXPECT_EQ(double(values[1]), sign * 2);
    EXPECT_EQ(double(values[2]), sign);
  }
}

TEST(ReproducibleSum, IsRoundedOnce) {
  for (const std::vector<int>& host : {std::vector{0, 0, 0}, {0, 1, 2}})
    together(host, {.reproducible = true}, [](Communicator& c) {
      rounds_once<float>(c, -60);
      rounds_once<double>(c, -118);
      rounds_once<Half>(c, -24);
      rounds_once<BFloat16>(c, -24);
    });
}

// A sum over many pieces of the communicator's memory equals the sums of its parts. Some pieces
// contain numbers that are not finite.
TEST(ReproducibleSum, OfManyPiecesIsThatOfItsParts) {
  constexpr std::size_t kMany = 700'000;
  Found found;
  for (const std::vector<int>& host : {std::vector{0, 0, 0}, {0, 1, 1}})
    together(host, {.reproducible = true}, [&](Communicator& c) {
      std::vector<double> values(kMany);
      const auto fill = [&] {
        for (std::size_t i = 0; i < kMany; ++i)
          values[i] =
              input<double>(i % 300'000 < 3000 ? Kind::kUnusual : Kind::kOrdinary, 3, c.rank(), i);
      };
      fill();
      c.all_reduce(std::span(values));
      EXPECT_TRUE(found.same("all", std::span<const double>(values)));
      const std::vector<double> whole = values;
      fill();
      constexpr std::size_t kPart = 100 * 1024;  // whole blocks
      for (std::size_t begin = 0; begin < kMany; begin += kPart)
        c.all_reduce(std::span(values).subspan(begin, std::min(kPart, kMany - begin)));
      EXPECT_EQ(std::memcmp(whole.data(), values.data(), kMany * sizeof(double)), 0);
    });
}

// Beyond the guarantee, a sum loses no more than the documented bound.
TEST(ReproducibleSum, OfNumbersThatAreFarApartLosesNoMoreThanItSays) {
  together({0, 0, 0, 0}, {.reproducible = true}, [&](Communicator& c) {
    std::vector<float> values(1024);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i == 5 ? 0x1p100f : 0x1.234567p0f * std::ldexp(1.0f, int(i % 100));
    const std::vector<float> mine = values;
    c.all_reduce(std::span(values));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double right = 4 * double(mine[i]), lost = std::abs(double(values[i]) - right);
      EXPECT_LE(lost, 4 * std::ldexp(1.0, 100 - 60) + right * 0x1p-24) << i;
      if (mine[i] >= 0x1p64f) {
        EXPECT_EQ(values[i], right) << i;
      }
    }
  });
}

TEST(ReproducibleSum, OfAllocatedMemoryAndBucketsIsTheSame) {
  for (const std::vector<int>& host : {std::vector{0, 0, 0}, {0, 0, 1}})
    together(host, {.reproducible = true}, [&](Communicator& c) {
      const auto fill = [&](std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = input<float>(Kind::kMany, 3, c.rank(), i);
      };
      std::vector<float> plain(3000), own(3000);
      fill(plain);
      c.all_reduce(std::span(plain), Reduce::kMean);
      const std::span<float> allocated = c.allocate<float>(3000);
      fill(allocated);
      c.all_reduce(allocated, Reduce::kMean);
      collectives::Buckets<float> buckets(c, {{nullptr, 3000}, {own.data(), own.size()}},
                                          {.bytes = 3000 * sizeof(float)});
      for (int round = 0; round < 2; ++round) {
        for (const std::size_t i : {1u, 0u}) {
          fill(buckets.gradient(i));
          buckets.ready(i);
        }
        buckets.wait();
        for (const std::span<const float> other :
             {std::span<const float>(allocated), std::span<const float>(buckets.gradient(0)),
              std::span<const float>(own)})
          EXPECT_EQ(std::memcmp(plain.data(), other.data(), plain.size() * sizeof(float)), 0);
      }
    });
}

template <class T>
void extremes(Communicator& c) {
  const float none = c.rank() == 0 ? std::nanf("5") : -std::nanf("9");
  std::vector<T> values{T(c.rank() == 1 ? 0.0f : -0.0f), T(none), T(float(c.rank()))};
  std::vector<T> smallest = values;
  c.all_reduce(std::span(values), Reduce::kMax);
  c.all_reduce(std::span(smallest), Reduce::kMin);
  const std::vector<T> right{T{}, T(std::numeric_limits<float>::quiet_NaN()), T(2.0f)};
  EXPECT_EQ(std::memcmp(values.data(), right.data(), 3 * sizeof(T)), 0);
  EXPECT_EQ(std::memcmp(smallest.data(), right.data(), 2 * sizeof(T)), 0);
  EXPECT_EQ(smallest[2], T{});
}

TEST(ReproducibleExtremes, HaveOneZeroAndOneNaN) {
  for (const std::vector<int>& host : {std::vector{0, 0, 0}, {0, 1, 1}})
    together(host, {.reproducible = true}, [](Communicator& c) {
      extremes<float>(c);
      extremes<double>(c);
      extremes<Half>(c);
      extremes<BFloat16>(c);
    });
}

TEST(ReproducibleProduct, IsRefusedOnAllRanksButOfIntegers) {
  together({0, 0}, {.reproducible = true}, [](Communicator& c) {
    std::vector<float> values(4, 2.0f);
    try {
      c.all_reduce(std::span(values), Reduce::kProduct);
      ADD_FAILURE() << "a product that is not reproducible";
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr("products of floating point are not reproducible"));
    }
    EXPECT_THROW((collectives::Buckets<float>(c, {{nullptr, 4}}, {.operation = Reduce::kProduct})),
                 engine::Error);
    std::vector<std::int64_t> whole(4, 3);
    c.all_reduce(std::span(whole), Reduce::kProduct);
    EXPECT_EQ(whole[3], 9);
  });
}

std::string refused(const std::vector<CommunicatorOptions>& of_rank) {
  const auto bootstraps = collectives::in_memory_bootstrap(std::vector<int>(of_rank.size()), 20s);
  const auto device = engine::cpu_device();
  std::vector<std::string> texts(of_rank.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        Communicator(*bootstraps[rank], device->ops(engine::DType::kFloat32, {.threads = 1}),
                     of_rank[rank]);
      } catch (const engine::Error& error) {
        EXPECT_EQ(error.code(), engine::Code::kInvalid);
        texts[rank] = error.what();
      }
    });
  threads.clear();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  return texts[0];
}

TEST(CommunicatorOptions, ThatDifferOrCannotBeAreRefusedOnAllRanks) {
  EXPECT_THAT(refused({{.reproducible = true}, {}}), HasSubstr("all must ask for the same"));
  EXPECT_THAT(refused({{.algorithm = "ring"}, {}}), HasSubstr("all must ask for the same"));
  EXPECT_THAT(refused({{.algorithm = "rings"}, {.algorithm = "rings"}}), HasSubstr("rings"));
}

}  // namespace reproducible_test
}  // namespace lockstep::test
