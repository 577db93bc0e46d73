// SPDX-License-Identifier: MIT
// Tests the arithmetic of collectives: exactly the balanced tree on every device, for all types,
// numbers of sources, and counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <thread>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "test/engine/ops/instruction_sets.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {
namespace reduce_test {

// Selects the type in which elements are added.
template <class T>
using Computed = std::conditional_t<sizeof(T) == 2, float, T>;

// Holds sources of `count` elements, each followed by one that must not change. With `odd`, they
// begin one element past an aligned address.
template <class T>
struct Sources {
  std::vector<std::vector<T>> memory;
  std::vector<const std::byte*> from;
  std::size_t lead;
  Sources(std::size_t sources, std::size_t count, bool odd, auto number) : lead(odd ? 1 : 0) {
    for (std::size_t s = 0; s < sources; ++s) {
      memory.emplace_back(lead + count + 1, T(77));
      for (std::size_t i = 0; i < count; ++i) memory[s][lead + i] = T(number(s, i));
    }
    point();
  }
  void point() {
    from.clear();
    for (auto& source : memory) from.push_back(data(source));
  }
  std::byte* data(std::vector<T>& source) const {
    return reinterpret_cast<std::byte*>(source.data() + lead);
  }
};

// Reduces two numbers; integers wrap around.
template <class C>
C joined(ReduceOp op, C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    if (op == ReduceOp::kSum) return C(U(a) + U(b));
    if (op == ReduceOp::kProduct) return C(U(a) * U(b));
  }
  if (op == ReduceOp::kSum) return a + b;
  if (op == ReduceOp::kProduct) return a * b;
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

// Returns the balanced tree over sources [first, first + count).
template <class T>
Computed<T> tree(ReduceOp op, const std::vector<std::vector<T>>& all, std::size_t at,
                 std::size_t first, std::size_t count) {
  if (count == 1) return all[first][at];
  const std::size_t half = (count + 1) / 2;
  return joined<Computed<T>>(op, tree(op, all, at, first, half),
                             tree(op, all, at, first + half, count - half));
}

template <class T>
T expected(ReduceOp op, const std::vector<std::vector<T>>& all, std::size_t at) {
  if (all.size() == 1) return all[0][at];
  return T(tree(op, all, at, 0, all.size()));
}

// Compares bit by bit, except that all NaNs are equal.
template <class T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

constexpr ReduceOp kOps[]{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

class Reduce : public testing::Test {
 protected:
  template <class T>
  void all_sources_and_counts(auto number) {
    for (const ReduceOp op : kOps)
      for (std::size_t sources = 1; sources <= 9; ++sources)
        for (const std::size_t count :
             {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1023, 1024, 2500}) {
          one<T>(machines_, op, sources, count, number);
          if (HasFatalFailure()) return;
        }
  }

  // Tests one reduction into two targets, separate memory and one of the sources, in either order.
  // It runs with and without prefetching.
  template <class T>
  void one(std::span<Machine> machines, ReduceOp op, std::size_t sources, std::size_t count,
           auto number) {
    const Sources<T> before(sources, count, count % 2 == 1, number);
    std::vector<T> answer;
    for (std::size_t i = 0; i < count; ++i)
      answer.push_back(expected(op, before.memory, before.lead + i));
    for (Machine& m : machines) {
      for (const int way : {0, 1, 2, 3}) {
        Sources<T> s = before;
        s.point();
        std::vector<T> apart(count + 1, T(55));
        std::vector<T>& shared = s.memory[sources / 2];
        std::byte* to[] = {reinterpret_cast<std::byte*>(apart.data()), s.data(shared)};
        if (way / 2 != 0) std::swap(to[0], to[1]);
        ReduceArguments a;
        a.dtype = dtype_of<T>();
        a.op = op;
        a.from = s.from;
        a.to = to;
        a.count = count;
        a.read_ahead = way % 2 != 0;
        m.reduce(a);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_TRUE(same(apart[i], answer[i]))
              << m.name() << ", " << name(a.dtype) << ", operation " << int(op) << ", " << sources
              << " sources, element " << i << " of " << count << ": " << apart[i] << ", not "
              << answer[i];
          ASSERT_TRUE(same(shared[s.lead + i], answer[i])) << m.name();
        }
        ASSERT_EQ(apart[count], T(55));
        ASSERT_EQ(shared[s.lead + count], T(77));
      }
    }
  }

  // Returns the processor with its best kernels.
  std::span<Machine> processor() { return std::span(machines_).first(1); }

  std::vector<std::unique_ptr<Device>> devices_ = host_devices();
  std::vector<Machine> machines_ = all_machines(devices_);
};

std::int64_t drawn(std::size_t source, std::size_t i) {
  return std::int64_t(random_bits(9, source, i)[0] % 2001) - 1000;
}

// Returns numbers whose sums depend on the order of addition, so only the same tree gives equal
// bits. Some sums overflow 16 bits, and some numbers underflow in all 16-bit types.
double uneven(std::size_t source, std::size_t i, int least, int most) {
  const int power = int(random_bits(8, source, i)[1] % unsigned(most - least)) + least;
  return std::ldexp(double(drawn(source, i)) * 1.1, power);
}
float of_32_bits(std::size_t source, std::size_t i) {
  return float(uneven(source, i, -20, 20));
}
double of_64_bits(std::size_t source, std::size_t i) {
  return uneven(source, i, -20, 20);
}
template <class T>
T of_16_bits(std::size_t source, std::size_t i) {
  return T(float(uneven(source, i, -28, 5)));
}

TEST_F(Reduce, IntegersAreExactAndWrapAround) {
  all_sources_and_counts<std::int32_t>([](auto s, auto i) { return std::int32_t(drawn(s, i)); });
  all_sources_and_counts<std::int64_t>(
      [](auto s, auto i) { return drawn(s, i) * 1'000'000'000'000; });
}

TEST_F(Reduce, FloatingPointSumsHaveTheBitsOfTheBalancedTree) {
  all_sources_and_counts<float>(of_32_bits);
  all_sources_and_counts<double>(of_64_bits);
}

// The tree uses float32, and its result is rounded once.
TEST_F(Reduce, SumsOf16BitsAreRoundedOnce) {
  all_sources_and_counts<Half>(of_16_bits<Half>);
  all_sources_and_counts<BFloat16>(of_16_bits<BFloat16>);
}

TEST_F(Reduce, EveryInstructionSetGivesTheSame) {
  InstructionSets sets;
  for (const std::int64_t one_of_them : sets.all()) {
    SCOPED_TRACE(sets.use(one_of_them));
    for (const ReduceOp op : kOps)
      for (const std::size_t sources : {1, 2, 3, 4, 7})
        for (const std::size_t count : {1, 31, 64, 129, 1500}) {
          one<float>(processor(), op, sources, count, of_32_bits);
          one<double>(processor(), op, sources, count, of_64_bits);
          one<std::int32_t>(processor(), op, sources, count, drawn);
          one<std::int64_t>(processor(), op, sources, count,
                            [](auto s, auto i) { return drawn(s, i) << 30; });
          one<Half>(processor(), op, sources, count, of_16_bits<Half>);
          one<BFloat16>(processor(), op, sources, count, of_16_bits<BFloat16>);
          if (HasFatalFailure()) return;
        }
  }
}

// Tests each number by itself, scaled, and combined with some others, which covers all conversions
// to float32 and back.
template <class T>
void every_number_of_16_bits(Machine& m) {
  constexpr std::size_t kAll = 65536;
  std::vector<T> numbers(kAll), others(kAll), results(kAll);
  for (std::size_t i = 0; i < kAll; ++i) numbers[i].bits = std::uint16_t(i);
  const std::byte* from[] = {reinterpret_cast<std::byte*>(numbers.data()),
                             reinterpret_cast<std::byte*>(others.data())};
  std::byte* to[] = {reinterpret_cast<std::byte*>(results.data())};
  ReduceArguments a;
  a.dtype = dtype_of<T>();
  a.from = std::span(from).first(1);
  a.to = to;
  a.count = kAll;
  m.reduce(a);
  ASSERT_EQ(std::memcmp(results.data(), numbers.data(), 2 * kAll), 0) << "a copy";
  a.epilogue = Epilogue::kScale;
  for (const double scale : {1.0 / 3, 3.0, 0x1p-14}) {
    a.scale = scale;
    m.reduce(a);
    for (std::size_t i = 0; i < kAll; ++i)
      ASSERT_TRUE(same(results[i], T(numbers[i] * float(scale)))) << i << " times " << scale;
  }
  a.epilogue = Epilogue::kNone;
  a.from = from;
  for (const std::size_t step : {1, 1025, 4099, 30011}) {
    for (std::size_t i = 0; i < kAll; ++i) others[i].bits = std::uint16_t(i * step + step / 2);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
      a.op = op;
      m.reduce(a);
      for (std::size_t i = 0; i < kAll; ++i)
        ASSERT_TRUE(same(results[i], T(joined<float>(op, numbers[i], others[i]))))
            << i << " and " << others[i].bits << ", operation " << int(op);
    }
  }
}

TEST_F(Reduce, EveryNumberOf16BitsIsConvertedByEveryInstructionSet) {
  InstructionSets sets;
  for (const std::int64_t one_of_them : sets.all()) {
    SCOPED_TRACE(sets.use(one_of_them));
    every_number_of_16_bits<Half>(machines_[0]);
    every_number_of_16_bits<BFloat16>(machines_[0]);
    if (HasFatalFailure()) return;
  }
}

// Tests targets separate from all sources, with non-temporal stores: they are complete at every
// alignment, and no neighboring element changes.
template <class T>
void past_the_caches(Machine& m) {
  constexpr std::size_t kCount = 1500;
  for (std::size_t sources = 1; sources <= 6; ++sources) {
    const Sources<T> s(sources, kCount, false,
                       [](auto k, auto i) { return T(float(drawn(k, i))); });
    for (std::size_t lead : {1u, 2u, 15u, 16u, 32u}) {
      for (std::size_t other : {lead, lead + 5}) {
        std::vector<T> first(kCount + 40, T(55)), second(kCount + 40, T(55));
        std::byte* to[] = {reinterpret_cast<std::byte*>(first.data() + lead),
                           reinterpret_cast<std::byte*>(second.data() + other)};
        ReduceArguments a;
        a.dtype = dtype_of<T>();
        a.from = s.from;
        a.to = to;
        a.count = kCount;
        a.stream = true;
        m.reduce(a);
        for (std::size_t i = 0; i < kCount; ++i) {
          const T answer = expected(ReduceOp::kSum, s.memory, i);
          ASSERT_EQ(first[lead + i], answer) << m.name() << ", element " << i;
          ASSERT_EQ(second[other + i], answer) << m.name() << ", element " << i;
        }
        EXPECT_EQ(first[lead - 1], T(55));
        EXPECT_EQ(first[lead + kCount], T(55));
        EXPECT_EQ(second[other - 1], T(55));
        EXPECT_EQ(second[other + kCount], T(55));
      }
    }
  }
}

TEST_F(Reduce, TargetsPastTheCachesHoldTheSame) {
  for (Machine& m : machines_) past_the_caches<float>(m);
  InstructionSets sets;
  for (const std::int64_t one_of_them : sets.all()) {
    SCOPED_TRACE(sets.use(one_of_them));
    past_the_caches<float>(machines_[0]);
    past_the_caches<Half>(machines_[0]);
    past_the_caches<BFloat16>(machines_[0]);
  }
}

// The product is computed in double precision and rounded once, even if `scale` is not a float, and
// across blocks.
TEST_F(Reduce, ScaleMultipliesTheResult) {
  constexpr std::size_t kCount = 1100;
  for (Machine& m : machines_) {
    for (std::size_t sources : {1u, 3u, 8u}) {
      for (double scale : {0.25, 1.0 / 3, 1.0 / 7}) {
        Sources<float> s(sources, kCount, false, [](auto k, auto i) {
          return std::ldexp(float(drawn(k, i)), -int(i % 140));
        });
        std::vector<float> result(kCount);
        std::byte* to[] = {reinterpret_cast<std::byte*>(result.data())};
        ReduceArguments a;
        a.from = s.from;
        a.to = to;
        a.count = kCount;
        a.epilogue = Epilogue::kScale;
        a.scale = scale;
        m.reduce(a);
        for (std::size_t i = 0; i < kCount; ++i) {
          const float sum = expected(ReduceOp::kSum, s.memory, i);
          ASSERT_EQ(result[i], float(double(sum) * scale)) << m.name() << ", " << i;
        }
      }
    }
  }
}

// In 16 bits, the product is computed in float32, from the sum before rounding.
template <class T>
void scaled_once(Machine& m) {
  constexpr std::size_t kCount = 1100;
  for (const std::size_t sources : {1u, 3u, 4u, 8u}) {
    for (const double scale : {0.25, 1.0 / 3}) {
      const Sources<T> s(sources, kCount, false, of_16_bits<T>);
      std::vector<T> result(kCount);
      std::byte* to[] = {reinterpret_cast<std::byte*>(result.data())};
      ReduceArguments a;
      a.dtype = dtype_of<T>();
      a.from = s.from;
      a.to = to;
      a.count = kCount;
      a.epilogue = Epilogue::kScale;
      a.scale = scale;
      m.reduce(a);
      for (std::size_t i = 0; i < kCount; ++i) {
        const float sum = tree(ReduceOp::kSum, s.memory, i, 0, sources);
        ASSERT_TRUE(same(result[i], T(sum * float(scale)))) << m.name() << ", " << i;
      }
    }
  }
}

TEST_F(Reduce, ScaleOf16BitsMultipliesBeforeItRounds) {
  for (Machine& m : machines_) {
    scaled_once<Half>(m);
    scaled_once<BFloat16>(m);
  }
}

// Tests the squares of the stored results, which are rounded if they have 16 bits.
template <class T>
void squares(Machine& m) {
  for (std::size_t count : {0u, 1u, 7u, 1024u}) {
    const Sources<T> s(3, count, false, [](auto k, auto i) { return T(float(drawn(k, i))); });
    double squares = -1, answer = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double sum = double(expected(ReduceOp::kSum, s.memory, i));
      answer += sum * sum;  // integers below 2^53: exact in every order
    }
    ReduceArguments a;
    a.dtype = dtype_of<T>();
    a.from = s.from;
    a.count = count;
    a.epilogue = Epilogue::kSquares;
    a.squares = &squares;
    for (const bool read_ahead : {false, true}) {  // of targets that do not exist
      a.read_ahead = read_ahead;
      m.reduce(a);
      EXPECT_EQ(squares, answer) << m.name() << ", " << count;
    }
  }
}

TEST_F(Reduce, SquaresAreThoseOfTheSums) {
  for (Machine& m : machines_) {
    squares<float>(m);
    squares<Half>(m);
    squares<BFloat16>(m);
  }
}

template <class T>
void none_wins(Machine& m) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : kOps) {
    for (std::size_t sources = 1; sources <= 9; ++sources) {
      const Sources<T> s(sources, 70, false,
                         [&](auto k, auto i) { return T(k == i % sources ? nan : float(k)); });
      std::vector<T> result(70);
      std::byte* to[] = {reinterpret_cast<std::byte*>(result.data())};
      ReduceArguments a;
      a.dtype = dtype_of<T>();
      a.op = op;
      a.from = s.from;
      a.to = to;
      a.count = result.size();
      m.reduce(a);
      for (const T number : result) EXPECT_TRUE(std::isnan(float(number))) << m.name() << sources;
    }
  }
}

TEST_F(Reduce, ANumberThatIsNoneWinsOverAllNumbers) {
  for (Machine& m : machines_) {
    none_wins<float>(m);
    none_wins<double>(m);
    none_wins<Half>(m);
    none_wins<BFloat16>(m);
  }
}

// Returns the results of five steps of a rule on a block, updated in place, for comparison with the
// float64 oracle.
Results five_updates(Machine& m, const UpdateRule& rule, std::size_t count) {
  const Operand w = m.operand({count}, random_numbers(count, 1));
  const Operand slots[2] = {m.operand({count}, std::vector<double>(count)),
                            m.operand({count}, std::vector<double>(count))};
  StepState state;
  for (int step = 0; step < 5; ++step) {
    const Operand g[2] = {m.operand({count}, random_numbers(count, 10 + std::uint64_t(step))),
                          m.operand({count}, random_numbers(count, 20 + std::uint64_t(step)))};
    const Operand copy = m.empty({count});
    const std::byte* from[] = {g[0].tensor.data, g[1].tensor.data};
    std::byte* to[] = {w.tensor.data, copy.tensor.data};
    ReduceArguments a;
    a.dtype = m.dtype();
    a.from = from;
    a.to = to;
    a.count = count;
    a.epilogue = Epilogue::kUpdate;
    a.scale = 0.75;
    a.update.rule = &rule;
    a.update.state = &state;
    a.update.local_rate = 0.5;
    a.update.weight = w.tensor.data;
    a.update.slots = {slots[0].tensor.data, slots[1].tensor.data};
    state.step = step;
    state.rate = 0.1 / (step + 1);
    m.reduce(a);
    EXPECT_EQ(copy.values(), w.values());
  }
  return {w.values(), slots[0].values(), slots[1].values()};
}

TEST_F(Reduce, UpdatesAreThoseOfTheOracle) {
  const auto oracle_device = reference_device();
  Machine oracle(*oracle_device, DType::kFloat64);
  for (UpdateKind kind :
       {UpdateKind::kSgd, UpdateKind::kAdam, UpdateKind::kAdamW, UpdateKind::kLars}) {
    for (int variant = 0; variant < 8; ++variant) {
      UpdateRule rule;
      rule.kind = kind;
      rule.momentum = variant % 2 == 0 ? 0 : 0.9;
      rule.nesterov = variant / 2 % 2 == 1;
      rule.weight_decay = variant / 4 == 0 ? 0 : 0.05;
      rule.epsilon = 1e-3;
      for (std::size_t count : {1u, 5u, 1024u}) {
        const Results answer = five_updates(oracle, rule, count);
        for (Machine& m : machines_) {
          if (m.dtype() == DType::kBFloat16) continue;  // such weights have masters
          SCOPED_TRACE(fmt::format("rule {} variant {}", int(kind), variant));
          expect_close(m, five_updates(m, rule, count), answer);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(Reduce, ManyThreadsMayCallOneObject) {
  for (Machine& m : machines_) {
    std::vector<std::vector<float>> results(4, std::vector<float>(1024));
    Sources<float> s(6, 1024, false, [](auto k, auto i) { return float(drawn(k, i)); });
    std::vector<std::thread> threads;
    for (std::vector<float>& result : results) {
      threads.emplace_back([&m, &s, &result] {
        std::byte* to[] = {reinterpret_cast<std::byte*>(result.data())};
        ReduceArguments a;
        a.from = s.from;
        a.to = to;
        a.count = 1024;
        for (int repeat = 0; repeat < 20; ++repeat) m.reduce(a);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<float>& result : results) {
      for (std::size_t i = 0; i < 1024; ++i) {
        ASSERT_EQ(result[i], expected(ReduceOp::kSum, s.memory, i));
      }
    }
  }
}

}  // namespace reduce_test
}  // namespace lockstep::engine
