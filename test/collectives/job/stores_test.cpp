// SPDX-License-Identifier: MIT
// Results that are written with non-temporal stores have the same bits as others, also if ranks
// store differently. So have sums that prefetch other lines. Calibration times both kinds of each.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/job/calibration.h"
#include "collectives/job/rank_link.h"
#include "engine/cpu/cpu_device.h"
#include "test/strategies/observed_device.h"

namespace lockstep::test {
namespace stores_test {

using namespace std::chrono_literals;
using collectives::MemoryAccess;

constexpr std::size_t kCount = std::size_t(1) << 18,
                      kMost = std::numeric_limits<std::size_t>::max();
constexpr MemoryAccess kAlways{0, 0, true}, kNever{kMost, kMost, true},
    kReads{kMost, kMost, true, true};

std::unique_ptr<engine::Ops> sums(OnReduce on_reduce) {
  return observed(engine::cpu_device()->ops(engine::DType::kFloat32, {.threads = 1}),
                  std::move(on_reduce));
}

// Holds the results of rank 1, and the number of reductions of each kind. Each algorithm of one
// host sums random numbers, and a gather follows.
struct Ended {
  std::vector<std::vector<float>> results;
  int streamed = 0, ahead = 0;  // ahead: with prefetches for reading
};

Ended run(const MemoryAccess& first, const MemoryAccess& second) {
  constexpr int kRanks = 2;
  auto views = collectives::in_memory_bootstrap({0, 0}, 60s);
  std::atomic<int> streamed{0}, ahead{0};
  Ended ended;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const auto ops = sums([&](const engine::ReduceArguments& a) {
        streamed += a.stream ? 1 : 0;
        ahead += a.read_ahead ? 1 : 0;
      });
      collectives::Job job(collectives::rank_of_each_process(*views[std::size_t(rank)]), {});
      job.set_access(rank == 0 ? first : second);
      const std::vector<int>& host = job.ranks().host;
      collectives::StepPlan plan;
      std::size_t scratch = 0;
      collectives::Request request;
      request.subject = {0, kCount};
      request.host = host;
      for (const collectives::Algorithm& algorithm : collectives::all_reduce_algorithms()) {
        if (!algorithm.refusal(host).empty()) continue;
        request.name = algorithm.name;
        request.scratch = scratch;
        plan.push_back({algorithm.make(request), {}, false});
        scratch += algorithm.scratch(request);
      }
      plan.push_back({collectives::direct_all_gather(request), {}, false});
      collectives::RankLink link(job, *ops, plan, kCount * sizeof(float), scratch * sizeof(float),
                                 "a test");
      auto* const values = reinterpret_cast<float*>(link.data());
      for (std::size_t p = 0; p < plan.size(); ++p) {
        std::minstd_rand random(unsigned(rank + 1));
        for (std::size_t i = 0; i < kCount; ++i) values[i] = float(random()) / 1e9f - 1;
        for (int again = 0; again < 2; ++again) {
          link.start(int(p));
          link.executor().wait(int(p));
        }
        if (rank == 1) ended.results.emplace_back(values, values + kCount);
        job.bootstrap().all_gather("", "results are read");
      }
    });
  for (std::thread& thread : threads) thread.join();
  ended.streamed = streamed, ended.ahead = ahead;
  return ended;
}

TEST(Stores, BitsDoNotDependOnThem) {
  const Ended kept = run(kNever, kNever), streamed = run(kAlways, kAlways),
              mixed = run(kAlways, kNever), reads = run(kNever, kReads);
  EXPECT_EQ(kept.streamed, 0);
  EXPECT_EQ(kept.ahead, 0);
  EXPECT_GT(reads.ahead, 0);
  EXPECT_GT(mixed.streamed, 0);
  EXPECT_GT(streamed.streamed, mixed.streamed);
  ASSERT_GT(kept.results.size(), 3u);
  for (std::size_t p = 0; p < kept.results.size(); ++p)
    for (const Ended* other : {&streamed, &mixed, &reads})
      EXPECT_EQ(
          std::memcmp(kept.results[p].data(), other->results[p].data(), kCount * sizeof(float)), 0)
          << "plan " << p;
}

// Calibration times sums into other memory with both kinds of stores.
TEST(Stores, CalibrationTimesBothKinds) {
  const auto views = collectives::in_memory_bootstrap({0}, 60s);
  std::atomic<int> streamed{0}, kept{0};
  const auto ops = sums([&](const engine::ReduceArguments& a) {
    const bool apart = a.from.size() == 2 && a.to.size() == 2 && a.from[0] != a.to[0];
    if (apart) ++(a.stream ? streamed : kept);
    EXPECT_TRUE(apart || !a.stream || a.from.size() == 1);
  });
  const auto topology = collectives::discover(*views[0], {"cpu:0", "cpu:0"});
  collectives::Job job(collectives::ranks_of(*views[0], topology), {});
  collectives::calibrate(job, topology, *ops, {.most_touched = std::size_t(2) << 20});
  EXPECT_GT(streamed, 0);
  EXPECT_GT(kept, 0);
}

// Checks that the faster kind of prefetch is chosen, and that all sums after the comparison are
// measured with it.
void choose(bool read_ahead) {
  SCOPED_TRACE(read_ahead);
  const auto views = collectives::in_memory_bootstrap({0}, 60s);
  std::atomic<int> better{0}, worse{0};
  const auto ops = sums([&](const engine::ReduceArguments& a) {
    if (a.to.size() != 2 || a.from[0] != a.to[0]) return;  // in place, by all
    ++(a.read_ahead == read_ahead ? better : worse);
    if (a.read_ahead != read_ahead) std::this_thread::sleep_for(5ms);  // slow even on a busy host
  });
  const auto topology = collectives::discover(*views[0], {"cpu:0", "cpu:0"});
  collectives::Job job(collectives::ranks_of(*views[0], topology), {});
  const auto found =
      collectives::calibrate(job, topology, *ops, {.most_touched = std::size_t(2) << 20});
  EXPECT_EQ(found.topology.hosts[0].costs.read_ahead, read_ahead);
  EXPECT_GT(worse, 0) << "both kinds are timed";
  EXPECT_GT(better, 4 * worse) << "what comes after them is of the chosen kind";
}

TEST(Stores, CalibrationGoesOnWithTheBetterKindOfLines) {
  choose(false);
  choose(true);
}

}  // namespace stores_test
}  // namespace lockstep::test
