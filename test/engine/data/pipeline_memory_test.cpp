// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/data/pipeline.h"
#include "test/engine/data/numbers.h"
#include "test/support/counted_allocations.h"

namespace lockstep::engine {
namespace pipeline_memory_test {

using test::count_allocations;
using test::counted_allocations;

// The pipeline reads several batches ahead, and the last batch of the epoch is smaller.
TEST(PipelineMemory, TheSteadyStateAllocatesNothing) {
  const Numbers data(61);
  for (const bool in_place : {true, false}) {
    count_allocations();
    Pipeline pipeline(data, {.threads = 3, .in_place = in_place});
    EXPECT_GT(counted_allocations(), 0);
    DataPosition position;
    const auto request = [&] {
      pipeline.request(0, next_batch(position, 61, 8));
      position = after_batch(position, 61, 8);
    };
    for (int i = 0; i < 3; ++i) request();
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) {
        request();
        pipeline.take();
      }
    };
    steps(20);
    count_allocations();
    steps(200);
    EXPECT_EQ(counted_allocations(), 0);
  }
}

}  // namespace pipeline_memory_test
}  // namespace lockstep::engine
