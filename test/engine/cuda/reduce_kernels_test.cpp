// SPDX-License-Identifier: MIT
// Tests that reductions have the bits of the processor's for all types, operations, numbers of
// sources, alignments, and grids. The tests of all devices compare those with the balanced tree.
#include <gtest/gtest.h>

#include <limits>

#include "engine/cpu/cpu_device.h"
#include "engine/cuda/kernels/reduce.cuh"
#include "engine/ops/ops.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/reduce_operands.h"

namespace lockstep::engine::cuda {
namespace reduce_kernels_test {

constexpr std::size_t kSources[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 33, 64};

// Describes the epilogue of a sum.
struct End {
  Epilogue epilogue = Epilogue::kNone;
  double scale = 1;
};

class Reduction : public testing::Test {
 protected:
  // Tests one reduction into two targets. The first is separate memory `lead + skew` elements past
  // an aligned address, the second is a source. `reduce(sources, targets)` runs the kernel.
  template <class T>
  void one(ReduceArguments a, std::size_t sources, std::size_t count, std::size_t lead,
           std::size_t skew, auto number, auto reduce) {
    SCOPED_TRACE(testing::Message() << name(dtype_of<T>()) << ", " << sources << " sources, "
                                    << count << " elements, lead " << lead << ", skew " << skew);
    std::vector<std::vector<T>> results;
    for (const bool here : {true, false}) {
      Arrays<T> arrays(sources, count, lead, number);
      std::vector<T> apart(count + lead + skew + 1, T(55));
      const std::vector<const std::byte*> from = arrays.from();
      std::byte* to[] = {bytes_of(apart) + (lead + skew) * sizeof(T), arrays.data(sources / 2)};
      if (here) {
        a.dtype = dtype_of<T>(), a.from = from, a.to = to, a.count = count;
        ops_->reduce(a);
      } else {
        reduce(sources_of(from), targets_of(to));
      }
      results.push_back(apart);
      results.push_back(arrays.memory[sources / 2]);
    }
    ASSERT_TRUE(same(results[2], results[0]));
    ASSERT_TRUE(same(results[3], results[1]));
  }

  template <class T>
  void sums(End end) {
    ReduceArguments a;
    a.epilogue = end.epilogue, a.scale = end.scale;
    for (const std::size_t sources : kSources)
      for (const std::size_t count : {0u, 1u, 7u, 8u, 40u, 300u})
        for (const std::size_t lead : {0u, 3u}) {
          const std::size_t skew = count % 2;
          ASSERT_NO_FATAL_FAILURE(one<T>(
              a, sources, count, lead, skew, uneven<T>,
              [&](const Sources& from, const Targets& to) {
                const ReduceSum call{from, to, count, end.scale, end.epilogue == Epilogue::kRound};
                emulate({unsigned(1 + sources % 3), 1, 32}, [&] { run<T>(call); });
              }));
        }
  }

  // Tests the general kernel, from a module of any type.
  template <class T>
  void any(ReduceOp op, End end, auto number) {
    ReduceArguments a;
    a.op = op, a.epilogue = end.epilogue, a.scale = end.scale;
    for (const std::size_t sources : {1u, 2u, 3u, 5u, 9u, 64u})
      for (const std::size_t count : {0u, 1u, 33u, 1100u})
        ASSERT_NO_FATAL_FAILURE(
            one<T>(a, sources, count, 1, 0, number, [&](const Sources& from, const Targets& to) {
              ReduceAny call{dtype_of<T>(), dtype_of<T>(), op, end.epilogue, from, to, count};
              call.scale = end.scale;
              emulate({2, 1, 64}, [&] { run<float>(call); });
            }));
  }

  std::unique_ptr<Device> device_ = cpu_device();
  std::unique_ptr<Ops> ops_ = device_->ops(DType::kFloat32, {});
};

TEST_F(Reduction, SumsHaveTheBitsOfTheBalancedTree) {
  sums<float>({});
  sums<BFloat16>({});
  sums<Half>({});
}

TEST_F(Reduction, ScaledSumsAreRoundedOnce) {
  for (const double scale : {0.25, 1.0 / 3}) {
    sums<float>({Epilogue::kScale, scale});
    sums<BFloat16>({Epilogue::kScale, scale});
    sums<Half>({Epilogue::kScale, scale});
  }
}

TEST_F(Reduction, SumsAreRoundedToBfloat16) {
  sums<float>({Epilogue::kRound});
}

// Packs begin at the first element where all arrays are aligned, if there is one.
TEST_F(Reduction, PacksBeginWhereAllArraysAreAligned) {
  const std::vector<Half> narrow(64);
  const std::vector<float> wide(64);
  for (std::size_t lead = 0; lead < 8; ++lead) {
    CommonStart start(narrow.data() + lead);
    start.meet(wide.data() + lead % 4);
    EXPECT_EQ(start.of(20), (8 - lead) % 8);
    EXPECT_EQ(start.of(0), 0u);
    start.meet(wide.data() + lead + 1);
    EXPECT_EQ(start.of(20), 20u);
  }
}

// Tests that all values are copied, including NaNs.
template <class T>
void copied() {
  std::vector<T> numbers(65536), results(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i].bits = std::uint16_t(i);
  const std::byte* const from[] = {bytes_of(numbers)};
  std::byte* const to[] = {bytes_of(results)};
  const ReduceSum call{sources_of(from), targets_of(to), numbers.size()};
  emulate({4, 1, 256}, [&] { run<T>(call); });
  EXPECT_EQ(std::memcmp(results.data(), numbers.data(), 2 * numbers.size()), 0);
  results.assign(numbers.size(), T());
  const ReduceAny any{dtype_of<T>(), dtype_of<T>(), ReduceOp::kSum, Epilogue::kNone,
                      call.from,     call.to,       numbers.size()};
  emulate({4, 1, 256}, [&] { run<float>(any); });
  EXPECT_EQ(std::memcmp(results.data(), numbers.data(), 2 * numbers.size()), 0);
}

TEST_F(Reduction, OneSourceIsCopiedBitByBit) {
  copied<BFloat16>();
  copied<Half>();
}

constexpr ReduceOp kOps[]{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

TEST_F(Reduction, AnyTypeAndOperationHasTheBitsOfTheProcessor) {
  for (const ReduceOp op : kOps) {
    any<float>(op, {}, uneven<float>);
    any<double>(op, {}, uneven<double>);
    any<std::int32_t>(op, {}, uneven<std::int32_t>);
    any<std::int64_t>(op, {}, uneven<std::int64_t>);
    any<BFloat16>(op, {}, uneven<BFloat16>);
    any<Half>(op, {}, uneven<Half>);
  }
}

TEST_F(Reduction, AnyTypeIsScaledAndRounded) {
  const End third{Epilogue::kScale, 1.0 / 3};
  any<float>(ReduceOp::kSum, third, uneven<float>);
  any<double>(ReduceOp::kSum, third, uneven<double>);
  any<BFloat16>(ReduceOp::kSum, third, uneven<BFloat16>);
  any<Half>(ReduceOp::kSum, third, uneven<Half>);
  any<float>(ReduceOp::kSum, {Epilogue::kRound}, uneven<float>);
}

TEST_F(Reduction, ANumberThatIsNoneWinsOverAllNumbers) {
  const auto some_are_none = [](std::size_t source, std::size_t i) {
    return i % 5 == source % 5 ? std::numeric_limits<float>::quiet_NaN() : uneven<float>(source, i);
  };
  for (const ReduceOp op : kOps) any<float>(op, {}, some_are_none);
}

// Tests that the squares of each block equal the processor's, and that nothing else is written.
template <class T>
void squares_of_blocks(Ops& ops, bool by_any, std::size_t step) {
  for (const std::size_t sources : {1u, 3u, 9u})
    for (const std::size_t count : {0u, 1u, 13u, 1024u, 2500u}) {
      Arrays<T> arrays(sources, count, 0, uneven<T>);
      const std::vector<const std::byte*> from = arrays.from();
      const std::size_t blocks = std::max<std::size_t>(1, (count + kBlock - 1) / kBlock);
      std::vector<double> expected(blocks * step + 1, -1), squares = expected;
      std::vector<T> sums(count), results(count);
      for (std::size_t b = 0; b < blocks; ++b) {
        std::vector<const std::byte*> here;
        for (const std::byte* source : from) here.push_back(source + b * kBlock * sizeof(T));
        std::byte* const to[] = {bytes_of(sums) + b * kBlock * sizeof(T)};
        ReduceArguments a{.dtype = dtype_of<T>(), .from = here, .to = to};
        a.count = std::min(kBlock, count - b * kBlock);
        a.epilogue = Epilogue::kSquares, a.squares = &expected[b * step];
        ops.reduce(a);
      }
      std::byte* const to[] = {bytes_of(results)};
      if (by_any) {
        ReduceAny call{dtype_of<T>(),    dtype_of<T>(),  ReduceOp::kSum, Epilogue::kSquares,
                       sources_of(from), targets_of(to), count};
        call.squares = squares.data();
        call.step = step;
        emulate({2, 1, 64}, [&] { run<float>(call); });
      } else if constexpr (sizeof(T) < sizeof(double)) {
        const ReduceSquares call{sources_of(from), targets_of(to), count, squares.data(), step};
        emulate({2, 1, 256}, [&] { run<T>(call); });
      }
      EXPECT_EQ(squares, expected) << sources << " sources, " << count << " elements";
      EXPECT_TRUE(same(results, sums));
    }
}

TEST_F(Reduction, SquaresAreThoseOfWhatIsStored) {
  for (const std::size_t step : {1u, 2u}) {
    for (const bool by_any : {false, true}) {
      squares_of_blocks<float>(*ops_, by_any, step);
      squares_of_blocks<BFloat16>(*ops_, by_any, step);
      squares_of_blocks<Half>(*ops_, by_any, step);
    }
    squares_of_blocks<double>(*ops_, true, step);
  }
}

template <class From, class To>
void converted(Ops& ops) {
  Arrays<From> arrays(1, 500, 0, uneven<From>);
  const std::vector<const std::byte*> from = arrays.from();
  std::vector<To> expected(501, To(5.0f)), results(expected);
  std::byte *there[] = {bytes_of(expected)}, *to[] = {bytes_of(results)};
  ReduceArguments a{.dtype = dtype_of<From>(), .from = from, .to = there, .count = 500};
  a.target = dtype_of<To>();
  ops.reduce(a);
  const ReduceAny call{dtype_of<From>(),
                       dtype_of<To>(),
                       ReduceOp::kSum,
                       Epilogue::kNone,
                       sources_of(from),
                       targets_of(to),
                       500};
  emulate({3, 1, 32}, [&] { run<Half>(call); });
  EXPECT_TRUE(same(results, expected));
}

TEST_F(Reduction, OneSourceIsConverted) {
  converted<float, BFloat16>(*ops_);
  converted<BFloat16, float>(*ops_);
}

}  // namespace reduce_kernels_test
}  // namespace lockstep::engine::cuda
