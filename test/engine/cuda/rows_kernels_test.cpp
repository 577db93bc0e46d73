// SPDX-License-Identifier: MIT
#include "engine/cuda/kernels/rows.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "test/engine/cuda/kernel_batch.h"

namespace lockstep::engine::cuda {
namespace rows_kernels_test {

using Bytes = std::vector<std::uint8_t>;

Bytes numbered(std::size_t count, unsigned first) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = std::uint8_t(first + i * 7 % 100);
  return bytes;
}

// Describes a batch that starts at byte `shift` of its memory, which is 64 bytes longer.
struct Case {
  BatchSize size;  // columns: bytes of a row
  std::size_t shift;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const BatchSize& size : kSizes) {
    for (const std::size_t shift : {0, 4}) {
      all.push_back({{size.examples, size.planned, 4 * size.columns}, shift});
    }
  }
  return all;
}

TEST(RowsKernels, CopyCopiesTheRowsInUse) {
  for (const auto& [size, shift] : cases()) {
    const StepState state = state_of(size);
    for (const LaunchShape& grid : kGrids) {
      const Bytes x = numbered(size.planned * size.columns + 64, 1);
      Bytes y = numbered(x.size(), 101), wanted = y;
      std::copy_n(x.begin() + long(shift), size.examples * size.columns,
                  wanted.begin() + long(shift));
      const CopyRows copy{&state, x.data() + shift, y.data() + shift, size.columns};
      emulate(grid, [&] { run<float>(copy); });
      EXPECT_EQ(y, wanted);
    }
  }
}

TEST(RowsKernels, ClearClearsTheRowsInUseOrTheRest) {
  for (const auto& [size, shift] : cases()) {
    const StepState state = state_of(size);
    const std::size_t used = size.examples * size.columns, all = size.planned * size.columns;
    for (const LaunchShape& grid : kGrids) {
      Bytes y = numbered(all + 64, 1), rest = y, wanted = y, wanted_rest = y;
      std::fill_n(wanted.begin() + long(shift), used, 0);
      std::fill_n(wanted_rest.begin() + long(shift + used), all - used, 0);
      emulate(grid, [&] { run<float>(ClearRows{&state, y.data() + shift, size.columns}); });
      EXPECT_EQ(y, wanted);
      const ClearRest clear{&state, rest.data() + shift, size.columns, size.planned};
      emulate(grid, [&] { run<float>(clear); });
      EXPECT_EQ(rest, wanted_rest);
    }
  }
}

struct Columns {
  std::size_t x, from, y, to, count;  // bytes
};

TEST(RowsKernels, CopyOfColumnsLeavesTheOthers) {
  for (const Columns& c :
       {Columns{12, 4, 20, 8, 4}, Columns{32, 16, 48, 0, 16}, Columns{64, 0, 64, 32, 32},
        Columns{32, 4, 48, 16, 16}, Columns{8, 0, 8, 0, 8}, Columns{16, 8, 16, 4, 0}}) {
    for (const std::size_t rows : {0, 1, 7}) {
      const StepState state = state_of({rows, 8, 1});
      for (const LaunchShape& grid : kGrids) {
        const Bytes x = numbered(8 * c.x, 1);
        Bytes y = numbered(8 * c.y, 101), wanted = y;
        for (std::size_t r = 0; r < rows; ++r) {
          std::copy_n(x.begin() + long(r * c.x + c.from), c.count,
                      wanted.begin() + long(r * c.y + c.to));
        }
        const CopyColumns copy{&state, x.data(), c.x, c.from, y.data(), c.y, c.to, c.count};
        emulate(grid, [&] { run<float>(copy); });
        EXPECT_EQ(y, wanted);
      }
    }
  }
}

}  // namespace rows_kernels_test
}  // namespace lockstep::engine::cuda
