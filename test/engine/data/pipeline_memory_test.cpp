// SPDX-License-Identifier: MIT
// A program of its own, since it counts the allocations of all its threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/data/pipeline.h"
#include "test/engine/data/numbers.h"

namespace {
constinit std::atomic<long> allocations = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace lockstep::engine {
namespace {

// Several batches ahead; the last batch of the epoch is shorter than the others.
TEST(PipelineMemory, TheSteadyStateAllocatesNothing) {
  const Numbers data(61);
  for (const bool in_place : {true, false}) {
    Pipeline pipeline(data, {.threads = 3, .in_place = in_place});
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
    const long before = allocations;
    EXPECT_GT(before, 0);
    steps(200);
    EXPECT_EQ(allocations, before);
  }
}

}  // namespace
}  // namespace lockstep::engine
