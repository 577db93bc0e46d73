// SPDX-License-Identifier: MIT
// A plain sum, or a mean with the same bits, stays in registers (combine.h), and so does an update
// (update.h). Otherwise a block is summed into local memory that stays in the L1 cache, goes
// through the epilogue there, and is stored. `from` and `to` may therefore alias, while no loop has
// aliases.
#include "engine/cpu/reduce.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/cpu/combine.h"
#include "engine/cpu/update.h"
#include "engine/ops/checks.h"

namespace lockstep::engine::cpu {
namespace {

template <class T>
struct alignas(64) ReduceBlock {
  std::array<T, kBlock> values;
};

// Returns the sum from eight running sums, so that the order of adding is fixed and the loop
// vectorizes.
template <class T>
double sum_of_squares(const T* values, std::size_t count) {
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      sums[lane] += double(values[i + lane]) * double(values[i + lane]);
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    sums[lane] += double(values[i]) * double(values[i]);
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <class T>
void reduce_block(const ReduceArguments& a, std::size_t first, std::size_t count) {
  ReduceBlock<T> block;
  T* values = block.values.data();
  std::byte* const here[] = {reinterpret_cast<std::byte*>(values)};
  const std::byte* const sums[] = {here[0]};
  combine({.source = a.dtype,
           .target = a.dtype,
           .op = a.op,
           .from = a.from,
           .to = here,
           .read_at = first,
           .count = count});
  switch (a.epilogue) {
    case Epilogue::kNone:
      break;
    case Epilogue::kScale:
      if constexpr (std::is_arithmetic_v<T>) {  // others were scaled in registers
        for (std::size_t i = 0; i < count; ++i) values[i] = T(double(values[i]) * a.scale);
      }
      break;
    case Epilogue::kSquares:
      *a.squares = sum_of_squares(values, count);
      break;
    case Epilogue::kRound:
      if constexpr (std::is_same_v<T, float>)
        for (std::size_t i = 0; i < count; ++i) values[i] = float(BFloat16(values[i]));
      break;
    case Epilogue::kUpdate:
      broken("an update that is not in registers");
  }
  combine({.source = a.dtype,
           .target = a.dtype,
           .from = sums,
           .to = a.to,
           .write_at = first,
           .count = count,
           .stream = a.stream});
}

// Reduces all blocks. kSquares takes at most one.
template <class T>
void reduce_blocks(const ReduceArguments& a) {
  for (std::size_t first = 0; first == 0 || first < a.count; first += kBlock)
    reduce_block<T>(a, first, std::min(kBlock, a.count - first));
}

}  // namespace

void reduce(const ReduceArguments& arguments) {
  check_reduce(arguments);
  if (arguments.epilogue == Epilogue::kUpdate) return update(arguments);
  const bool scaled = arguments.epilogue == Epilogue::kScale;
  if (arguments.epilogue == Epilogue::kNone ||
      (scaled && scales_in_registers(arguments.dtype, arguments.scale))) {
    return combine({.source = arguments.dtype,
                    .target = arguments.target.value_or(arguments.dtype),
                    .op = arguments.op,
                    .from = arguments.from,
                    .to = arguments.to,
                    .count = arguments.count,
                    .scale = scaled ? arguments.scale : 1,
                    .stream = arguments.stream,
                    .read_ahead = arguments.read_ahead});
  }
  switch (arguments.dtype) {
    case DType::kFloat32:
      return reduce_blocks<float>(arguments);
    case DType::kFloat64:
      return reduce_blocks<double>(arguments);
    case DType::kInt32:
      return reduce_blocks<std::int32_t>(arguments);
    case DType::kInt64:
      return reduce_blocks<std::int64_t>(arguments);
    case DType::kFloat16:
      return reduce_blocks<Half>(arguments);
    case DType::kBFloat16:
      return reduce_blocks<BFloat16>(arguments);
  }
  broken("a reduction of an element type that does not exist");
}

}  // namespace lockstep::engine::cpu
