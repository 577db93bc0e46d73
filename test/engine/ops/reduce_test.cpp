// SPDX-License-Identifier: MIT
// The arithmetic of collectives: on every device, exactly the balanced tree, for all types, numbers
// of sources and counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {
namespace {

template <class T>
constexpr DType type_of() {
  if (std::is_same_v<T, float>) return DType::kFloat32;
  if (std::is_same_v<T, double>) return DType::kFloat64;
  return std::is_same_v<T, std::int32_t> ? DType::kInt32 : DType::kInt64;
}

// Sources of `count` elements, and one beyond that nobody may touch; they begin one element after
// an aligned address where `odd`.
template <class T>
struct Sources {
  std::vector<std::vector<T>> memory;
  std::vector<const std::byte*> from;
  std::size_t lead;
  Sources(std::size_t sources, std::size_t count, bool odd, auto number) : lead(odd ? 1 : 0) {
    for (std::size_t s = 0; s < sources; ++s) {
      memory.emplace_back(lead + count + 1, T(77));
      for (std::size_t i = 0; i < count; ++i) memory[s][lead + i] = number(s, i);
    }
    for (auto& source : memory) from.push_back(data(source));
  }
  std::byte* data(std::vector<T>& source) const {
    return reinterpret_cast<std::byte*>(source.data() + lead);
  }
};

template <class T>
T expected(ReduceOp op, const std::vector<std::vector<T>>& all, std::size_t at, std::size_t first,
           std::size_t count) {
  if (count == 1) return all[first][at];
  const std::size_t half = (count + 1) / 2;
  const T a = expected(op, all, at, first, half);
  const T b = expected(op, all, at, first + half, count - half);
  if (op == ReduceOp::kSum) return a + b;
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

class Reduce : public testing::Test {
 protected:
  template <class T>
  void all_sources_and_counts(auto number) {
    for (Machine& m : machines_) {
      SCOPED_TRACE(fmt::format("{} on {}", name(type_of<T>()), m.name()));
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
        for (std::size_t sources = 1; sources <= 9; ++sources) {
          for (std::size_t count : {0u, 1u, 2u, 7u, 1023u, 1024u, 2500u}) {
            one<T>(m, op, sources, count, number);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }

  // Into two places: memory of its own, and that of one of the sources.
  template <class T>
  void one(Machine& m, ReduceOp op, std::size_t sources, std::size_t count, auto number) {
    Sources<T> s(sources, count, count % 2 == 1, number);
    const auto before = s.memory;
    std::vector<T> apart(count + 1, T(55));
    std::vector<T>& shared = s.memory[sources / 2];
    std::byte* to[] = {reinterpret_cast<std::byte*>(apart.data()), s.data(shared)};
    ReduceArguments a;
    a.dtype = type_of<T>();
    a.op = op;
    a.from = s.from;
    a.to = to;
    a.count = count;
    m.ops().reduce(a);
    for (std::size_t i = 0; i < count; ++i) {
      const T answer = expected(op, before, s.lead + i, 0, sources);
      ASSERT_EQ(apart[i], answer) << sources << " sources, element " << i << " of " << count;
      ASSERT_EQ(shared[s.lead + i], answer);
    }
    ASSERT_EQ(apart[count], T(55));
    ASSERT_EQ(shared[s.lead + count], T(77));
  }

  std::vector<std::unique_ptr<Device>> devices_ = all_devices();
  std::vector<Machine> machines_ = all_machines(devices_);
};

std::int64_t drawn(std::size_t source, std::size_t i) {
  return std::int64_t(random_bits(9, source, i)[0] % 2001) - 1000;
}

TEST_F(Reduce, IntegersAreExact) {
  all_sources_and_counts<std::int32_t>([](auto s, auto i) { return std::int32_t(drawn(s, i)); });
  all_sources_and_counts<std::int64_t>(
      [](auto s, auto i) { return drawn(s, i) * 1'000'000'000'000; });
}

// Numbers whose sums depend on the order of adding: bits are equal only where the tree is.
TEST_F(Reduce, FloatingPointSumsHaveTheBitsOfTheBalancedTree) {
  const auto number = [](auto s, auto i) {
    return std::ldexp(double(drawn(s, i)), int(random_bits(8, s, i)[1] % 40) - 20);
  };
  all_sources_and_counts<float>([&](auto s, auto i) { return float(number(s, i)); });
  all_sources_and_counts<double>([&](auto s, auto i) { return number(s, i) * 1.1; });
}

// Targets apart from all sources, past the caches: whole, at every alignment, and nothing beside
// them is touched.
TEST_F(Reduce, TargetsPastTheCachesHoldTheSame) {
  constexpr std::size_t kCount = 1500;
  for (Machine& m : machines_) {
    for (std::size_t sources = 1; sources <= 6; ++sources) {
      Sources<float> s(sources, kCount, false, [](auto k, auto i) { return float(drawn(k, i)); });
      for (std::size_t lead : {1u, 2u, 15u, 16u}) {
        for (std::size_t other : {lead, lead + 5}) {
          std::vector<float> first(kCount + 40, 55), second(kCount + 40, 55);
          std::byte* to[] = {reinterpret_cast<std::byte*>(first.data() + lead),
                             reinterpret_cast<std::byte*>(second.data() + other)};
          ReduceArguments a;
          a.from = s.from;
          a.to = to;
          a.count = kCount;
          a.stream = true;
          m.ops().reduce(a);
          for (std::size_t i = 0; i < kCount; ++i) {
            const float answer = expected(ReduceOp::kSum, s.memory, i, 0, sources);
            ASSERT_EQ(first[lead + i], answer) << m.name() << ", element " << i;
            ASSERT_EQ(second[other + i], answer) << m.name() << ", element " << i;
          }
          EXPECT_EQ(first[lead - 1], 55);
          EXPECT_EQ(first[lead + kCount], 55);
          EXPECT_EQ(second[other - 1], 55);
          EXPECT_EQ(second[other + kCount], 55);
        }
      }
    }
  }
}

// The product is one of double precision, rounded once: also where `scale` is no float, and beyond
// a block.
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
        m.ops().reduce(a);
        for (std::size_t i = 0; i < kCount; ++i) {
          const float sum = expected(ReduceOp::kSum, s.memory, i, 0, sources);
          ASSERT_EQ(result[i], float(double(sum) * scale)) << m.name() << ", " << i;
        }
      }
    }
  }
}

TEST_F(Reduce, SquaresAreThoseOfTheSums) {
  for (Machine& m : machines_) {
    for (std::size_t count : {0u, 1u, 7u, 1024u}) {
      Sources<float> s(3, count, false, [](auto k, auto i) { return float(drawn(k, i)); });
      double squares = -1, answer = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const double sum = double(expected(ReduceOp::kSum, s.memory, i, 0, 3));
        answer += sum * sum;  // integers below 2^53: exact in every order
      }
      ReduceArguments a;
      a.from = s.from;
      a.count = count;
      a.epilogue = Epilogue::kSquares;
      a.squares = &squares;
      m.ops().reduce(a);
      EXPECT_EQ(squares, answer) << m.name() << ", " << count;
    }
  }
}

TEST_F(Reduce, ANumberThatIsNoneWinsOverAllNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Machine& m : machines_) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      for (std::size_t sources = 1; sources <= 9; ++sources) {
        Sources<float> s(sources, sources, false,
                         [&](auto k, auto i) { return k == i ? nan : float(k); });
        std::vector<float> result(sources);
        std::byte* to[] = {reinterpret_cast<std::byte*>(result.data())};
        ReduceArguments a;
        a.op = op;
        a.from = s.from;
        a.to = to;
        a.count = sources;
        m.ops().reduce(a);
        for (float number : result) EXPECT_TRUE(std::isnan(number)) << m.name() << sources;
      }
    }
  }
}

// Five steps of each rule on a block, against the float64 oracle; weights are updated in place.
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
    a.rule = &rule;
    a.state = &state;
    a.weight = w.tensor.data;
    a.slots = {slots[0].tensor.data, slots[1].tensor.data};
    state.step = step;
    state.rate = 0.1 / (step + 1);
    m.ops().reduce(a);
    EXPECT_EQ(copy.values(), w.values());
  }
  return {w.values(), slots[0].values(), slots[1].values()};
}

TEST_F(Reduce, UpdatesAreThoseOfTheOracle) {
  const auto oracle_device = reference_device();
  Machine oracle(*oracle_device, DType::kFloat64);
  for (UpdateKind kind : {UpdateKind::kSgd, UpdateKind::kAdam, UpdateKind::kAdamW}) {
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
        for (int repeat = 0; repeat < 20; ++repeat) m.ops().reduce(a);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<float>& result : results) {
      for (std::size_t i = 0; i < 1024; ++i) {
        ASSERT_EQ(result[i], expected(ReduceOp::kSum, s.memory, i, 0, 6));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::engine
