// SPDX-License-Identifier: MIT
// While gradients are written, summed and used, no code copies one with memcpy or memmove: neither
// lockstep nor the libraries below it. This program counts in front of both functions, which
// sanitizers would not accept, so it is not one of the unit tests. copied_gradients_test.cpp counts
// what plans and their kernels move. A kernel's block on the stack of its thread (4 KiB, in the
// first-level cache) is not a copy: the kernel computes in it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>

#include "collectives/communicator/buckets.h"
#include "engine/data/sets.h"
#include "engine/optim/optimizer.h"
#include "engine/train/staging.h"
#include "models/registry.h"
#include "strategies/session/factories.h"
#include "strategies/session/ranks.h"

namespace {

// Holds a range of memory that is watched, for all threads. Each range is filled once; `forget`
// empties all.
struct Watched {
  std::atomic<std::uintptr_t> begin{0}, end{0};
};
std::array<Watched, 64> watched;
std::atomic<std::size_t> places{0};
std::atomic<std::size_t> copied{0};  // bytes read from watched memory

void watch(const void* data, std::size_t bytes) {
  Watched& place = watched.at(places.load());
  place.begin = reinterpret_cast<std::uintptr_t>(data);
  place.end = place.begin + bytes;
  ++places;
}

void forget() {
  places = 0;
  copied = 0;
}

constexpr std::uintptr_t kFrames = std::uintptr_t(64) << 10;  // callers' stack, above this frame

void note(const void* to, const void* from, std::size_t bytes) {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const auto target = reinterpret_cast<std::uintptr_t>(to);
  if (target >= here && target < here + kFrames) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  for (std::size_t i = 0; i < places; ++i) {
    const std::uintptr_t first = std::max(begin, watched[i].begin.load());
    const std::uintptr_t last = std::min(begin + bytes, watched[i].end.load());
    if (first < last) copied += last - first;
  }
}

using Move = void* (*)(void*, const void*, std::size_t);
std::atomic<Move> real{nullptr};

void* move_bytes(void* to, const void* from, std::size_t bytes) {
  if (places > 0) note(to, from, bytes);
  Move move = real.load(std::memory_order_relaxed);
  if (move == nullptr) {
    move = reinterpret_cast<Move>(dlsym(RTLD_NEXT, "memmove"));
    real = move;
  }
  return move(to, from, bytes);
}

}  // namespace

extern "C" {
void* memcpy(void* to, const void* from, std::size_t bytes) {
  return move_bytes(to, from, bytes);
}
void* memmove(void* to, const void* from, std::size_t bytes) {
  return move_bytes(to, from, bytes);
}
}

namespace lockstep {
namespace copied_memory_test {

using collectives::Space;

TEST(CopiedMemory, TheCountSeesACopyOfAPartOfWhatIsWatched) {
  // The compiler does not know this length; it copies a short known one without a call.
  const volatile std::size_t length = 1000;
  std::vector<float> from(length, 1.0f), to(2 * length);
  forget();
  watch(from.data() + 100, 300 * sizeof(float));
  std::copy(from.begin(), from.end(), to.begin());
  EXPECT_EQ(copied, 300 * sizeof(float));
  std::copy(from.begin() + 400, from.end(), to.begin() + 1000);
  EXPECT_EQ(copied, 300 * sizeof(float));
  EXPECT_EQ(std::accumulate(to.begin(), to.end(), 0.0f), 1600.0f);
  forget();
}

TEST(CopiedMemory, OfGradientsIsNoneInAStep) {
  for (const char* model : {"mnist_cnn", "mlp"})
    for (const int replicas : {1, 2, 3}) {
      strategies::Session session(0, nullptr, {.log = engine::Log("", engine::Log::Level::kError)});
      strategies::Mirrored strategy =
          strategies::mirrored(session, {.replicas = replicas, .threads = 1});
      const engine::GraphSpec graph = models::build(model);
      const auto data = engine::data::random_images(graph.input_shape(),
                                                    graph.output_shape().elements(), 48 * 4, 1);
      strategy.open(graph, engine::optim::adam({.rate = 0.001}).rule, {48, 1, 1, {}});
      EXPECT_EQ(strategy.algorithm(), replicas == 1 ? "none" : "direct");
      forget();
      std::mutex mutex;
      strategy.run([&](engine::Replica& r) {
        std::scoped_lock lock(mutex);
        watch(static_cast<strategies::Mirror&>(r).space(Space::kGradient),
              r.graph.trainable() * engine::size_of(r.graph.dtype()));
      });
      strategy.assign({data.train->size(), 48, 0, 3, {}, true});
      strategy.run([&](engine::Replica& r) {
        engine::Pipeline pipeline(*data.train, {.seed = 1, .in_place = true});
        while (const auto work = strategy.next(r)) {
          pipeline.request(work->epoch, work->local_batch);
          engine::stage(r, pipeline.take(), work->step, work->global_batch, 0.01);
          r.graph.forward(*r.context, [&](engine::Range x) { strategy.before_forward(r, x); });
          r.graph.evaluate_loss(*r.context, true);
          r.graph.backward(*r.context, false,
                           [&](engine::Range x) { strategy.gradient_ready(r, x); });
          strategy.finish(r);
        }
      });
      EXPECT_EQ(copied, 0u) << model << ", " << replicas << " replicas";
      forget();
    }
}

// Gradients in memory of the buckets are summed there. The caller's own gradients are read once, to
// be copied there.
TEST(CopiedMemory, OfGradientsOfBucketsIsThatOfTheCallersOwnAlone) {
  constexpr std::size_t kCount = 70'000, kOwn = 3000, kRounds = 3;
  strategies::Session session(0, nullptr);
  forget();
  std::mutex mutex;
  std::atomic<int> ready{0};
  strategies::run_ranks(session, 3, [&](collectives::Communicator& c) {
    std::vector<float> own(kOwn);
    collectives::Buckets<float> buckets(c, {{nullptr, kCount}, {own.data(), kOwn}, {nullptr, 5}},
                                        {.bytes = 100'000});
    {
      std::scoped_lock lock(mutex);
      for (std::size_t i = 0; i < 3; ++i)
        watch(buckets.gradient(i).data(), buckets.gradient(i).size_bytes());
      ++ready;
    }
    c.barrier();
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < 3; ++i) {
        std::fill(buckets.gradient(i).begin(), buckets.gradient(i).end(), float(c.rank()));
        buckets.ready(i);
      }
      buckets.wait();
      EXPECT_EQ(buckets.gradient(0)[kCount - 1], 1.0f);
    }
    c.barrier();
  });
  EXPECT_EQ(ready, 3);
  EXPECT_EQ(copied, 3 * kRounds * kOwn * sizeof(float));
  forget();
}

}  // namespace copied_memory_test
}  // namespace lockstep
