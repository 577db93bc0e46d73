// SPDX-License-Identifier: MIT
// After the first steps, neither lockstep nor the libraries below it allocate more than 4 KiB at
// once. This program wraps glibc's allocator with a counter. Sanitizers do not support that, so it
// is not one of the unit tests.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <string>

#include "collectives/run/processor_wait.h"
#include "engine/data/sets.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/devices.h"
#include "engine/train/trainer.h"
#include "models/registry.h"
#include "strategies/session/factories.h"

namespace {

constexpr std::size_t kLarge = 4096;
std::atomic<bool> counting{false};
std::atomic<long> large{0};
std::atomic<std::size_t> largest{0};

void note(std::size_t bytes) {
  if (bytes <= kLarge || !counting) return;
  ++large;
  for (std::size_t seen = largest; bytes > seen && !largest.compare_exchange_weak(seen, bytes);) {
  }
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  note(bytes);
  return __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, std::size_t alignment, std::size_t bytes) {
  note(bytes);
  *to = __libc_memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}
}

namespace lockstep {
namespace large_allocations_test {

TEST(LargeAllocations, TheCountSeesThem) {
  counting = true;
  large = 0;
  std::vector<char> small(100), big(kLarge + 1);
  counting = false;
  EXPECT_EQ(large, 1);
  EXPECT_GT(big.size(), small.size());
}

// The watch of a session may take a lap during any step.
TEST(LargeAllocations, ALapOverTheThreadsMakesNone) {
  collectives::ThreadWaits waits;
  waits.lap();
  large = 0;
  counting = true;
  waits.lap();
  counting = false;
  EXPECT_EQ(large, 0);
}

TEST(LargeAllocations, NobodyMakesOneInASteadyStep) {
  if (engine::host_devices().front()->description().find("AVX-512") == std::string::npos)
    GTEST_SKIP() << "oneDNN allocates in each matrix product that it makes without AVX-512";
  for (const char* model : {"mnist_cnn", "lenet5", "mlp"}) {
    for (int replicas : {1, 2}) {
      strategies::Session session(0, nullptr, {.log = engine::Log("", engine::Log::Level::kError)});
      strategies::Mirrored strategy =
          strategies::mirrored(session, {.replicas = replicas, .threads = 1});
      const engine::GraphSpec graph = models::build(model);
      const auto data = engine::data::random_images(graph.input_shape(),
                                                    graph.output_shape().elements(), 48 * 30, 1);
      engine::TrainerOptions options;
      options.log = session.log();
      engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.01, .momentum = 0.9}),
                              options);
      large = 0;
      largest = 0;
      engine::FitOptions fit;
      fit.steps = 24;
      fit.global_batch = 48;
      fit.on_step = [&](const engine::StepReport& report) {
        if (report.step == 10) counting = true;
        if (report.step == 20) counting = false;
      };
      trainer.fit(*data.train, fit);
      EXPECT_FALSE(counting);
      EXPECT_EQ(large, 0) << model << ", " << replicas << " replicas; the largest has " << largest
                          << " bytes";
    }
  }
}

}  // namespace large_allocations_test
}  // namespace lockstep
